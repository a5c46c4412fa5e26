// The sizes and weights of a linear network, in the order of `linear_programs.py`.
#pragma once

#include "matrices.h"

#include <vector>

namespace {

using Floats = const float*;

// The matrices and rows of a program, one after the other, each beginning at a multiple of 16 numbers.
struct Cursor {
    Floats at;
    Floats next(int64_t count) {
        Floats here = at;
        at += (count + 15) / 16 * 16;
        return here;
    }
};

struct Layer {
    Floats weight, bias;
};

struct Ear {
    Floats cell, place, bias, gate, local;
    std::vector<Layer> layers;
};

struct Function {
    int64_t channels, shifts, scales, hears;
    Floats mean, scale, cell_mean, cell_scale, cell, bias, local, gate, last;
    Ear ear;
};

struct DecoderLayer {
    Floats first, bias, gate, last;
};

struct Program {
    int64_t dim, latent, hidden, edge_hidden, rounds, width, out_channels, out_shifts, out_scales, num_heard, frame_scales;
    int64_t num_ears = 0;
    float unit, thinnest, on_side, smallest;
    Floats centre, round_gate, round_last, reader_gate, reader_local, into, last, last_of_layer, out_scale, out_mean;
    std::vector<Function> functions;
    std::vector<DecoderLayer> layers;

    bool whole;  // all weights that were given were taken

    Program(const int64_t* plan, Floats weights, int64_t num_weights) {
        Cursor given{weights};
        int64_t num_functions, num_layers, ear_layers;
        for (int64_t* to : {&dim, &num_functions, &latent, &hidden, &edge_hidden, &rounds, &width, &num_layers, &ear_layers,
                            &out_channels, &out_shifts, &out_scales, &num_heard, &frame_scales})
            *to = *plan++;
        Floats constants = given.next(4);
        unit = constants[0], thinnest = constants[1], on_side = constants[2], smallest = constants[3];
        centre = given.next(dim);
        for (int64_t i = 0; i < num_functions; i++) {
            Function f{};
            for (int64_t* to : {&f.channels, &f.shifts, &f.scales, &f.hears}) *to = *plan++;
            f.mean = given.next(f.channels), f.scale = given.next(f.channels);
            f.cell_mean = given.next(dim), f.cell_scale = given.next(dim);
            f.cell = given.next(2 * dim * hidden), f.local = given.next((dim + 1) * hidden), f.bias = given.next(hidden);
            f.gate = given.next(2 * f.channels * hidden), f.last = given.next(hidden * latent);
            if (f.hears) {
                Ear& ear = f.ear;
                ear.cell = given.next(2 * dim * hidden), ear.place = given.next(dim * hidden), ear.bias = given.next(hidden);
                ear.gate = given.next(2 * f.channels * hidden), ear.local = given.next((2 * dim + 1) * hidden);
                for (int64_t l = 0; l < ear_layers; l++) {
                    Floats weight = given.next(hidden * hidden);
                    ear.layers.push_back({weight, given.next(hidden)});
                }
                num_ears++;
            }
            functions.push_back(f);
        }
        round_gate = given.next(latent * edge_hidden), round_last = given.next(edge_hidden * latent);
        reader_gate = given.next(latent * hidden), reader_local = given.next(dim * hidden);
        into = given.next((1 + num_ears) * hidden * width);
        for (int64_t l = 0; l < num_layers; l++) {
            DecoderLayer layer;
            layer.first = given.next(dim * 2 * width), layer.bias = given.next(2 * width);
            layer.gate = given.next(width * 2 * width), layer.last = given.next(2 * width * width);
            layers.push_back(layer);
        }
        last = given.next(out_channels * width), last_of_layer = given.next(num_layers ? out_channels * 2 * width : 0);
        out_scale = given.next(out_channels), out_mean = given.next(out_channels);
        whole = given.at == weights + num_weights;
    }
};

}  // namespace
