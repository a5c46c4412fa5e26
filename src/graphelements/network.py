"""The graph element network: its stages one after the other, on a mesh and on the coarser ones behind it (paper section 3.3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from .compilation import UNCHECKED, library
from .fitting import Fields, fit_fields
from .linear_programs import LinearProgram
from .neighbours import ByItem
from .representations import Coupling
from .samples import FunctionSamples, Queries, SFTBatch
from .sft_network import Meshes, seen_channels
from .stages import Couplings, Stages
from .unions import MeshUnion


@dataclass(frozen=True, eq=False)
class Found:
    """What is found of samples on a mesh, whatever pass they are written in: nodes they touch, and the fields through them."""

    couplings: Couplings
    fields: Fields | None


DOUBT = 2.0  # what is left to coarser meshes before anything is learned: its sigmoid is 0.12


class GraphElementNetwork(Stages):
    """The network of one SFT; runs on any mesh, which it is given in the call."""

    compiled_as_whole = False
    program: LinearProgram | None = None

    def forward(self, batch: SFTBatch, meshes: Meshes) -> dict[str, Float[Tensor, "_queries _channels"]]:
        """What the decoders put out for every query, in network units; `predict` gives answers in original units."""
        mesh = self.meshes(meshes, batch.num_items)
        inputs, frame = self.seen(batch, mesh.space)
        found = self.find(inputs, mesh)
        states, inputs = self.absorb(inputs, mesh, found)
        outputs = self.read(states, batch.queries, mesh, inputs, found)
        return {name: self.restored(name, output, batch.queries[name].items, frame) for name, output in outputs.items()}

    def absorb(
        self, inputs: Mapping[str, FunctionSamples], mesh: MeshUnion, found: Sequence[Found] | None = None
    ) -> tuple[list[Float[Tensor, "_nodes latent"]], Mapping[str, FunctionSamples]]:
        """The states that samples as `seen` gives them lead to in all passes, and the samples as they were last written.

        `found`: what `find` gives for them.
        """
        told, found = inputs, self.find(inputs, mesh) if found is None else found
        states = self.settle(told, mesh, found)
        for _ in range(self.config.passes - 1):
            told = self.informed(inputs, states, mesh, found)
            states = self.settle(told, mesh, found)
        return states, told

    def find(self, inputs: Mapping[str, FunctionSamples], mesh: MeshUnion) -> list[Found] | None:
        """What is needed more than once of samples as `seen` gives them, on a mesh and on the coarser ones behind it, coarsest
        first; None where nothing is."""
        if self.config.passes == 1 and not self.config.fitted:
            return None
        behind = [] if mesh.coarser is None else self.find(inputs, mesh.coarser) or []
        return [*behind, self._found(inputs, mesh)]

    def _found(self, inputs: Mapping[str, FunctionSamples], mesh: MeshUnion) -> Found:
        couplings, fields = self.couple(inputs, mesh), None
        if self.config.fitted:
            channels = {f.name: f.channels for f in self.sft.inputs}
            given = inputs
            if self.config.linear:  # what was read at a sample's place stands before its values
                seen = {f.name: seen_channels(f, self.config, self.sft.space.dim) for f in self.sft.inputs}
                given = {name: replace(each, values=each.values[:, -seen[name] :]) for name, each in inputs.items()}
            fields = fit_fields(given, channels, mesh)
        return Found(couplings, fields)

    def informed(
        self,
        inputs: Mapping[str, FunctionSamples],
        states: Sequence[Float[Tensor, "_nodes latent"]],
        mesh: MeshUnion,
        found: Sequence[Found] | None = None,
    ) -> dict[str, FunctionSamples]:
        """Samples as `seen` gives them, each with z at its place beside its value."""
        places = {name: Queries(each.points, items=each.items) for name, each in inputs.items()}
        there = self.recall(states, places, mesh, None if found is None else [each.couplings for each in found])
        told = {}
        for name, each in inputs.items():
            both = (there[name], each.values) if self.config.linear else (each.values, there[name])  # what is linear comes first
            told[name] = replace(each, values=torch.cat(both, -1))
        return told

    def settle(
        self, inputs: Mapping[str, FunctionSamples], meshes: Meshes, found: Sequence[Found] | None = None
    ) -> list[Float[Tensor, "_nodes latent"]]:
        """zT of a mesh and of the coarser ones behind it, coarsest first: samples as `seen` gives them, written and propagated.

        That is nested iteration, as in multigrid: samples are written to every mesh, the coarser states are read at the nodes of
        the next mesh by the same r and rho that queries are read by, and the rounds refine them. The weights are the same for
        all, so a finer mesh contains the coarse computation and only adds to it. `found`: what `find` gives, where it is
        known.
        """
        mesh = self.meshes(meshes)
        behind, here = (None, None) if found is None else (found[:-1], found[-1])
        settled = [] if mesh.coarser is None else self.settle(inputs, mesh.coarser, behind)
        return [*settled, self.refine(inputs, mesh, settled[-1] if settled else None, here)]

    def refine(
        self,
        inputs: Mapping[str, FunctionSamples],
        mesh: MeshUnion,
        known: Float[Tensor, "_coarser latent"] | None,
        found: Found | None = None,
    ) -> Float[Tensor, "_nodes latent"]:
        """zT of one mesh, given that of the coarser one behind it."""
        found = self._found(inputs, mesh) if found is None else found
        states = self.write(inputs, mesh, found.couplings)
        if found.fields is not None and self.field_encoder is not None:
            fields = found.fields
            states = states + self.field_encoder(fields.numbers if fields.mesh is mesh else fields.at(mesh.positions, mesh.items))
        if mesh.coarser is not None:
            assert known is not None
            told = self.blend(known, self.refinement(mesh, mesh.coarser), mesh.coarser)
            states = torch.addcmul(states, mesh.refines, told)
        return self.propagate(states, mesh)

    def refinement(self, mesh: MeshUnion, coarser: MeshUnion) -> Coupling:
        """Which nodes of the coarser mesh every node touches; kept with the union unless something in it is learned."""
        if self.representation in mesh.couplings:
            return mesh.couplings[self.representation]
        coupling = self.representation(mesh.positions, mesh.items, coarser, self.kernels)
        moving = mesh.positions.requires_grad or coarser.positions.requires_grad
        learned = moving or any(True for _ in self.representation.parameters())
        if not learned:
            mesh.couplings[self.representation] = coupling
        return coupling

    def read(
        self,
        states: Float[Tensor, "nodes latent"] | Sequence[Tensor],
        queries: Mapping[str, Queries],
        meshes: Meshes,
        inputs: Mapping[str, FunctionSamples] | None = None,
        found: Sequence[Found] | None = None,
        by_item: Mapping[str, ByItem] | None = None,
    ) -> dict[str, Float[Tensor, "_queries _channels"]]:
        """Decoder outputs at any number of queries, in network units; `restored` and `answer` make predictions of them.

        `states` are those of the mesh, or of coarser ones behind it as well, as `settle` gives them; `inputs` the samples as
        `absorb` gives them (with one pass: as `seen` does), where queries hear them directly; `found` what
        `find` gives, where decoders see fitted fields; `by_item` what `by_item` gives, where it is known.
        """
        mesh, fields = self.meshes(meshes), found[-1].fields if found else None
        latents, heard = self.recall(states, queries, mesh), self.hear(inputs, queries, mesh, by_item)
        return {name: self.decode(name, latents[name], query, mesh, heard.get(name), fields) for name, query in queries.items()}

    def recall(
        self,
        states: Float[Tensor, "nodes latent"] | Sequence[Tensor],
        queries: Mapping[str, Queries],
        mesh: MeshUnion,
        couplings: Sequence[Couplings] | None = None,
    ) -> dict[str, Float[Tensor, "_queries latent"]]:
        """z(x) of all queries. With `reads` "all" it is a mean over the meshes: each leaves a share to the coarser ones.

        `couplings`: which nodes they touch, where that is known, on the meshes whose states are given.
        """
        *behind, here = [{}] if couplings is None else couplings
        *coarser_states, states_here = [states] if isinstance(states, Tensor) else states
        known = {}
        if coarser_states and mesh.coarser is not None and self.share is not None:
            known = self.recall(coarser_states, queries, mesh.coarser, behind or None)
        found = {}
        for name, query in queries.items():
            if query.points is None:
                latents = self.integrate(states_here, query, mesh)
            elif name in here:
                latents = self.blend(states_here, here[name], mesh)
            else:
                latents = self.gather(states_here, query, mesh)
            judged = latents if query.points is not None or self.config.integration == "area" else None  # sums grow with nodes
            if self.config.linear:  # shares do not depend on values
                there = None if query.points is None else mesh.space.coordinates(query.points)
                judged = there if there is not None or judged is None else latents.new_zeros(len(latents), mesh.space.dim)
            if self.share is not None and judged is not None:  # also without coarser meshes: all weights have gradients
                left = torch.sigmoid(self.share(judged) - DOUBT)
                if self.finest is not None and not self.training:  # no mesh of training is beyond it
                    beyond = (1 - mesh.mean_spacing / self.finest.clamp(min=1e-6)).clamp(min=0)
                    left = left + (1 - left) * beyond[query.items]
                left = mesh.has_coarser[query.items] * left
                latents = torch.lerp(latents, known.get(name, latents), left)
            found[name] = latents
        return found

    @torch.no_grad()
    def predict(self, batch: SFTBatch, meshes: Meshes, chunk: int = 2**17) -> dict[str, Float[Tensor, "_queries _channels"]]:
        """Answers in original units; queries are read in pieces that touch `chunk` nodes in all, so that memory stays bounded."""
        self.validate(batch, meshes)
        mesh = self.meshes(meshes, batch.num_items)
        if self.program is not None and (answers := self.program.answers(batch, mesh)) is not None:
            return answers
        size = max(1, chunk // max(self.representation.touched(mesh), self.config.num_heard))
        inputs, frame = self.seen(batch, mesh.space)
        found, by_item = self.find(inputs, mesh), self.by_item(inputs, batch.num_items)
        if all(len(queries) <= size for queries in batch.queries.values()):
            counted = {name: queries.counted(batch.num_items) for name, queries in batch.queries.items()}
            outputs = self.respond(inputs, counted, mesh, found, by_item)
        else:
            states, inputs = self.absorb(inputs, mesh, found)
            outputs = {
                name: torch.cat([self.read(states, {name: p}, mesh, inputs, found, by_item)[name] for p in queries.split(size)])
                for name, queries in batch.queries.items()
            }
        of_items = {name: queries.items for name, queries in batch.queries.items()}
        return {name: self.answer(name, self.restored(name, output, of_items[name], frame)) for name, output in outputs.items()}

    def respond(
        self,
        inputs: Mapping[str, FunctionSamples],
        queries: Mapping[str, Queries],
        mesh: MeshUnion,
        found: Sequence[Found] | None,
        by_item: Mapping[str, ByItem],
    ) -> dict[str, Float[Tensor, "_queries _channels"]]:
        """Decoder outputs for samples as `seen` gives them: all that is done with weights, which can be compiled as one graph."""
        states, inputs = self.absorb(inputs, mesh, found)
        return self.read(states, queries, mesh, inputs, found, by_item)

    def compile_stages(self) -> None:
        """Compile predictions as a whole, for many of them.

        A linear network that can be a `LinearProgram` (as the preset `small` of houses) becomes one, for batches and grids of any
        size; it is compiled within seconds, once on a machine. What a program does not do is done in plain torch.

        Of all others `respond` is compiled, for batches of one size on meshes of one size. The first prediction then takes a
        minute or more, and so does the first with another number of items or queries; the number of samples is free. Searches
        split the graph: fitted fields, queries that hear the nearest among more samples, barycentric weights, nearest nodes on
        more than 128. Queries that hear samples must be equally many for all items, one item after the other, or they split it,
        too; and so does a new `union`: give all predictions the same one. What `predict` reads in pieces is compiled kernel by
        kernel.
        """
        if self.compiled_as_whole:
            return
        if LinearProgram.serves(self):
            library("linear")  # a missing compiler shows here
            self.compiled_as_whole, self.program = True, LinearProgram(self)
            return
        self.compiled_kernels = self.compiled_as_whole = True  # what is left is compiled kernel by kernel
        respond = torch.compile(self.respond, options=UNCHECKED)

        def marked(inputs: Mapping[str, FunctionSamples], queries: Any, mesh: Any, found: Any, by_item: Mapping[str, ByItem]):
            of_samples = [rows for each in inputs.values() for rows in (each.points, each.values, each.items)]
            for rows in (*of_samples, *(each.order for each in by_item.values())):
                torch._dynamo.maybe_mark_dynamic(rows, 0)  # their number is another one in every batch
            for each in by_item.values():
                if each.table is not None:
                    torch._dynamo.maybe_mark_dynamic(each.table, 1)
            return respond(inputs, queries, mesh, found, by_item)

        self.respond = marked  # type: ignore[method-assign]
