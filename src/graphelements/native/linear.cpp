// The answers of a linear network on a grid, from the samples of an item to its answers in one go: frame, boxes, writing, rounds,
// reading, hearing, decoding. Names and formulas are those of the package; see `linear_programs.py` for what is given.
//
// An item that needs more (the cell of a sample that is alone, the nearest of many samples) makes all of it return 0.

#include "boxes.h"
#include "program.h"

#include <atomic>
#include <cmath>
#include <tuple>

namespace {

struct Mesh {
    int64_t num_nodes;
    const int64_t* shape;  // of the grid
    Floats axes;           // one after the other
    Floats nearness, log_spacing;     // of nodes; nearness: 1 / (unit spacing)
    Floats reader_base;               // nodes x hidden
    const int32_t *starts, *senders;  // of incoming edges
    Floats edge_gates;                // edges x edge_hidden, divided by the degrees of receivers
};

struct Samples {
    int64_t count;
    Floats points, values;
    const int64_t* items;
};

// Where the rows of each item begin; false where items are not in order.
bool starts_of(std::vector<int64_t>& starts, const int64_t* items, int64_t count, int64_t num_items) {
    starts.assign(num_items + 1, 0);
    for (int64_t r = 0; r < count; r++) {
        if (r > 0 && items[r] < items[r - 1]) return false;
        starts[items[r] + 1]++;
    }
    for (int64_t i = 0; i < num_items; i++) starts[i + 1] += starts[i];
    return true;
}

// The natural logarithm of a number of at least 1, by the series of 2 atanh((m - 1) / (m + 1)), to 1e-9: in plain arithmetic, so
// that loops over it are vectors.
inline float logarithm(float x) {
    int32_t bits;
    memcpy(&bits, &x, sizeof bits);
    int32_t exponent = (bits - 0x3f3504f3) >> 23;  // of m in [sqrt(1/2), sqrt(2))
    bits -= exponent * (1 << 23);
    float m;
    memcpy(&m, &bits, sizeof m);
    float s = (m - 1) / (m + 1), q = s * s;
    return exponent * 0.693147180559945f + 2 * s * (1 + q * (1 / 3.f + q * (1 / 5.f + q * (1 / 7.f + q * (1 / 9.f)))));
}

// What is found for one item after the other, by one thread.
struct Worker {
    const Program& program;
    const Mesh& mesh;
    int64_t dim = program.dim, hidden = program.hidden, width = program.width, corners = int64_t(1) << program.dim;
    int64_t gathered_size = (1 + program.num_ears) * program.hidden;  // what is read and what is heard, side by side
    Boxes boxes{dim, program.thinnest * program.unit, program.on_side * program.unit};
    std::vector<float> level, told, heard_boxes;
    std::vector<int64_t> num_boxes;
    Buffer<float> states, of_nodes, sums, reader_gates;
    Buffer<int32_t> nodes;
    Buffer<float> taken, weights, offsets, gathered, features, terms, further, rows, factors, gated;
    float size = 1;

    Worker(const Program& program, const Mesh& mesh)
        : program(program), mesh(mesh), states(mesh.num_nodes * program.latent),
          of_nodes(mesh.num_nodes * std::max(program.hidden, program.edge_hidden)), sums(mesh.num_nodes * program.edge_hidden),
          reader_gates(mesh.num_nodes * program.hidden), nodes(BLOCK * corners), taken(BLOCK * program.dim),
          weights(BLOCK * corners),
          offsets(BLOCK * corners * program.dim), gathered(BLOCK * gathered_size),
          features(BLOCK * (2 * program.dim + 1)), terms(BLOCK * program.hidden), further(BLOCK * program.hidden),
          rows(BLOCK * program.width), factors(BLOCK * 2 * program.width),
          gated(BLOCK * 2 * program.width) {}

    // The level and the size of the item's values.
    void find_frame(const Samples* given, const std::vector<std::vector<int64_t>>& firsts, int64_t item) {
        level.assign(1, 0);
        int64_t shifting = 0;
        size_t number = 0;
        for (const Function& f : program.functions) {
            const Samples& samples = given[number];
            int64_t begin = firsts[number][item], end = firsts[number][item + 1];
            number++;
            if (!f.shifts) continue;
            level.resize(f.channels, 0);
            shifting += end - begin;
            for (int64_t r = begin; r < end; r++)
                for (int64_t c = 0; c < f.channels; c++) level[c] += samples.values[r * f.channels + c];
        }
        for (float& each : level) each /= std::max<int64_t>(shifting, 1);
        size = 1;
        if (!program.frame_scales) return;
        float squares = 0;
        number = 0;
        for (const Function& f : program.functions) {
            const Samples& samples = given[number];
            int64_t begin = firsts[number][item], end = firsts[number][item + 1];
            number++;
            if (!f.scales || begin == end) continue;
            in_units(f, samples.values + begin * f.channels, end - begin);
            float sum = 0;
            for (float value : told) sum += value * value;
            squares += sum / told.size();
        }
        size = std::sqrt(std::max(squares, program.smallest * program.smallest));
    }

    // Values in network units, relative to the frame, in `told`.
    void in_units(const Function& f, Floats given, int64_t count) {
        told.resize(count * f.channels);
        for (int64_t r = 0; r < count; r++)
            for (int64_t c = 0; c < f.channels; c++) {
                float value = given[r * f.channels + c];
                value = (value - (f.shifts ? level[c] : f.scales ? 0 : f.mean[c])) / f.scale[c];
                told[r * f.channels + c] = f.scales ? value / size : value;
            }
    }

    // Puts the points of a block coordinate by coordinate.
    void take(Floats points, int64_t count) {
        for (int64_t d = 0; d < dim; d++)
            for (int64_t r = 0; r < count; r++) taken.at[d * BLOCK + r] = points[r * dim + d];
    }

    // Which nodes the points taken touch, the corners of the cell of the grid around each: `nodes`, `weights`, and `offsets` in
    // units of the nodes' spacing, corner by corner, of each as many as a block has points.
    void touch(int64_t count) {
        int32_t below[BLOCK];
        float share[BLOCK], from[2][BLOCK];
        std::fill_n(nodes.at, corners * BLOCK, 0);
        std::fill_n(weights.at, corners * BLOCK, 1.f);
        Floats axis = mesh.axes;
        for (int64_t d = 0; d < dim; d++) {
            const int32_t n = mesh.shape[d];
            Floats x = taken.at + d * BLOCK;
            std::fill_n(below, count, 0);
            for (int64_t i = 1; i + 1 < n; i++) {
                float place = axis[i];
                for (int64_t r = 0; r < count; r++) below[r] += place <= x[r];
            }
            for (int64_t r = 0; r < count; r++) {
                float here = axis[below[r]], next = axis[std::min(below[r] + 1, n - 1)];
                from[0][r] = x[r] - here;
                from[1][r] = x[r] - next;
                float part = (x[r] - here) / (n > 1 ? next - here : 1);
                share[r] = n > 1 ? std::min(std::max(part, 0.f), 1.f) : 0;
            }
            for (int64_t corner = 0; corner < corners; corner++) {
                const int32_t up = corner >> d & 1;
                int32_t* node = nodes.at + corner * BLOCK;
                float *weight = weights.at + corner * BLOCK, *offset = offsets.at + (corner * dim + d) * BLOCK;
#pragma GCC ivdep
                for (int64_t r = 0; r < count; r++) {
                    node[r] = node[r] * n + std::min(below[r] + up, n - 1);
                    weight[r] *= up ? share[r] : 1 - share[r];
                    offset[r] = from[up][r];
                }
            }
            axis += n;
        }
        for (int64_t corner = 0; corner < corners; corner++) {
            const int32_t* node = nodes.at + corner * BLOCK;
            for (int64_t r = 0; r < count; r++) share[r] = mesh.nearness[node[r]];
            for (int64_t d = 0; d < dim; d++) {
                float* offset = offsets.at + (corner * dim + d) * BLOCK;
                for (int64_t r = 0; r < count; r++) offset[r] *= share[r];
            }
        }
    }

    // Writes the boxes that were found to the nodes, and keeps of each what an ear makes of it: a, g, its middle and its sizes.
    void write(const Function& f) {
        const auto& [low, high, values] = std::tie(boxes.low, boxes.high, boxes.values);
        int64_t channels = f.channels, count = values.size() / channels;
        float* node_hidden = of_nodes.at;
        std::fill(node_hidden, node_hidden + mesh.num_nodes * hidden, 0.f);
        std::vector<float> seen(2 * channels + 2 * dim), middle(dim), base(hidden), gate(hidden);
        for (int64_t b = 0; b < count; b++) {
            float volume = 0;
            for (int64_t d = 0; d < dim; d++) {
                float wide = (high[b * dim + d] - low[b * dim + d]) / program.unit;
                float log_size = std::log(std::max(wide, program.thinnest)) - f.cell_mean[d];
                middle[d] = (low[b * dim + d] + high[b * dim + d]) / 2;
                seen[2 * channels + d] = log_size / f.cell_scale[d];
                seen[2 * channels + dim + d] = wide;
                volume += log_size;
            }
            volume = std::exp(volume);
            for (int64_t c = 0; c < channels; c++) seen[c] = values[b * channels + c], seen[channels + c] = seen[c] * volume;
            Floats cell = seen.data() + 2 * channels;
            times(base.data(), f.bias, cell, f.cell, 2 * dim, hidden);
            times(gate.data(), nullptr, seen.data(), f.gate, 2 * channels, hidden);
            take(middle.data(), 1);
            touch(1);
            for (int64_t corner = 0; corner < corners; corner++) {
                int64_t node = nodes.at[corner * BLOCK];
                Floats of_spacing = f.local + dim * hidden, offset = offsets.at + corner * dim * BLOCK;
                for (int64_t h = 0; h < hidden; h++) {
                    float sum = base[h] + mesh.log_spacing[node] * of_spacing[h];
                    for (int64_t d = 0; d < dim; d++) sum += offset[d * BLOCK] * f.local[d * hidden + h];
                    node_hidden[node * hidden + h] += weights.at[corner * BLOCK] * gate[h] * std::max(sum, 0.f);
                }
            }
            if (f.hears) {
                std::vector<float> place(dim);
                for (int64_t d = 0; d < dim; d++) place[d] = (middle[d] - program.centre[d]) / program.unit;
                times(base.data(), f.ear.bias, cell, f.ear.cell, 2 * dim, hidden);
                times(base.data(), base.data(), place.data(), f.ear.place, dim, hidden);
                times(gate.data(), nullptr, seen.data(), f.ear.gate, 2 * channels, hidden);
                heard_boxes.insert(heard_boxes.end(), base.begin(), base.end());
                heard_boxes.insert(heard_boxes.end(), gate.begin(), gate.end());
                heard_boxes.insert(heard_boxes.end(), middle.begin(), middle.end());
                for (int64_t d = 0; d < dim; d++) heard_boxes.push_back(std::max(cell[dim + d], program.thinnest));
            }
        }
        if (f.hears) num_boxes.push_back(count);
        add(states, of_nodes, f.last, hidden, program.latent);
    }

    // to = from + row matrix, of one row.
    void times(float* to, Floats from, Floats row, Floats matrix, int64_t depth, int64_t columns) const {
        product<float>({to, columns}, {from, 0}, {row, depth}, {matrix, columns}, 1, depth, columns);
    }

    // to += rows matrix, of all nodes.
    void add(Buffer<float>& to, const Buffer<float>& rows, Floats matrix, int64_t depth, int64_t columns) const {
        product<float>({to.at, columns}, {to.at, columns}, {rows.at, depth}, {matrix, columns}, mesh.num_nodes, depth, columns);
    }

    void propagate() {
        int64_t latent = program.latent, edge_hidden = program.edge_hidden, num_nodes = mesh.num_nodes;
        for (int64_t t = 0; t < program.rounds; t++) {
            Matrix<const float> gate{program.round_gate, edge_hidden};
            product<float>({of_nodes.at, edge_hidden}, {}, {states.at, latent}, gate, num_nodes, latent, edge_hidden);
            in_pieces<float>(edge_hidden, [&](int64_t first, auto columns, auto vectors) {
                constexpr int C = decltype(vectors)::value;
                auto part = [&](Floats rows, int64_t row, int c) {
                    return load(rows + row * edge_hidden + first + c * LANES<float>, columns - c * LANES<float>);
                };
                for (int64_t j = 0; j < num_nodes; j++) {
                    Vec<float> sum[C] = {};
                    for (int64_t e = mesh.starts[j]; e < mesh.starts[j + 1]; e++)
                        for (int c = 0; c < C; c++) sum[c] += part(mesh.edge_gates, e, c) * part(of_nodes.at, mesh.senders[e], c);
                    float* to = sums.at + j * edge_hidden + first;
                    for (int c = 0; c < C; c++) store(to + c * LANES<float>, sum[c], columns - c * LANES<float>);
                }
            });
            add(states, sums, program.round_last, edge_hidden, latent);
        }
        Matrix<const float> of_reader{program.reader_gate, hidden};
        product<float>({reader_gates.at, hidden}, {}, {states.at, latent}, of_reader, num_nodes, latent, hidden);
    }

    // The hidden layer of what the points taken read from nodes.
    void read(int64_t count) {
        touch(count);
        in_pieces<float>(hidden, [&](int64_t first, auto columns, auto vectors) {
            constexpr int C = decltype(vectors)::value;
            auto part = [&](Floats rows, int64_t row, int c) {
                return load(rows + row * hidden + first + c * LANES<float>, columns - c * LANES<float>);
            };
            for (int64_t r = 0; r < count; r++) {
                Vec<float> total[C] = {}, sum[C];
                for (int64_t corner = 0; corner < corners; corner++) {
                    int64_t node = nodes.at[corner * BLOCK + r];
                    for (int c = 0; c < C; c++) sum[c] = part(mesh.reader_base, node, c);
                    for (int64_t d = 0; d < dim; d++) {
                        float offset = offsets.at[(corner * dim + d) * BLOCK + r];
                        for (int c = 0; c < C; c++) sum[c] += offset * part(program.reader_local, d, c);
                    }
                    float weight = weights.at[corner * BLOCK + r];
                    for (int c = 0; c < C; c++) total[c] += weight * part(reader_gates.at, node, c) * Relu()(sum[c], 0, 0);
                }
                float* to = gathered.at + r * gathered_size + first;
                for (int c = 0; c < C; c++) store(to + c * LANES<float>, total[c], columns - c * LANES<float>);
            }
        });
    }

    // What the points taken hear of the boxes of one function.
    void hear(float* heard, const Ear& ear, Floats given, int64_t num, int64_t count) {
        int64_t box_size = 2 * hidden + 2 * dim;
        for (int64_t r = 0; r < count; r++) std::fill_n(heard + r * gathered_size, hidden, 0.f);
        for (int64_t b = 0; b < num; b++) {
            Floats base = given + b * box_size, gate = base + hidden, middle = gate + hidden, sizes = middle + dim;
            float *squares = features.at + 2 * dim * BLOCK, *last = terms.at, *next = further.at;
            std::fill(squares, squares + count, 1.f);
            for (int64_t d = 0; d < dim; d++) {
                float *offset = features.at + d * BLOCK, *direction = features.at + (dim + d) * BLOCK;
                float of_unit = 1 / program.unit, of_size = 1 / sizes[d], from = middle[d];
                Floats x = taken.at + d * BLOCK;
#pragma GCC ivdep
                for (int64_t r = 0; r < count; r++) {
                    offset[r] = (x[r] - from) * of_unit;
                    float scaled = offset[r] * of_size, square = scaled * scaled;
                    direction[r] = scaled / std::sqrt(1 + square);
                    squares[r] += square;
                }
            }
            for (int64_t r = 0; r < count; r++) squares[r] = 0.5f * logarithm(squares[r]);
            Matrix<const float> local{features.at, 1, BLOCK};
            product<float>({last, hidden}, {base, 0}, local, {ear.local, hidden}, count, 2 * dim + 1, hidden, Relu());
            for (const Layer& layer : ear.layers) {
                Matrix<const float> before{last, hidden}, weight{layer.weight, hidden};
                auto after = [&](Vec<float> x, int64_t at, int64_t n) { return load(before.at + at, n) + Relu()(x, at, n); };
                product<float>({next, hidden}, {layer.bias, 0}, before, weight, count, hidden, hidden, after);
                std::swap(last, next);
            }
            for (int64_t first = 0; first < hidden; first += LANES<float>) {
                int64_t left = hidden - first;
                Vec<float> factor = load(gate + first, left);
                for (int64_t r = 0; r < count; r++) {
                    float* to = heard + r * gathered_size + first;
                    store<float>(to, load(to, left) + factor * load(last + r * hidden + first, left), left);
                }
            }
        }
    }

    // What the decoder makes of what was read and heard, in the units of the answers.
    void decode(float* answers, int64_t count) {
        for (int64_t d = 0; d < dim; d++)
            for (int64_t r = 0; r < count; r++)
                features.at[d * BLOCK + r] = (taken.at[d * BLOCK + r] - program.centre[d]) / program.unit;
        Matrix<const float> place{features.at, 1, BLOCK};
        Matrix<float> here{rows.at, width}, factor{factors.at, 2 * width}, both{gated.at, 2 * width};
        for (const DecoderLayer& layer : program.layers) {
            product<float>(factor, {layer.bias, 0}, place, {layer.first, 2 * width}, count, dim, 2 * width, Relu());
            auto times_factor = [&](Vec<float> x, int64_t at, int64_t left) { return x * load(factors.at + at, left); };
            product<float>(both, {}, here, {layer.gate, 2 * width}, count, width, 2 * width, times_factor);
            if (&layer != &program.layers.back()) product<float>(here, here, both, {layer.last, width}, count, 2 * width, width);
        }
        for (int64_t c = 0; c < program.out_channels; c++) {  // the last layer and what follows it are one matrix
            Floats of_rows = program.last + c * width, of_both = program.last_of_layer + c * 2 * width;
            float mean = program.out_mean[c], scale = program.out_scale[c] * (program.out_scales ? size : 1);
            float origin = program.out_shifts ? level[c] : program.out_scales ? 0 : mean;
            for (int64_t r = 0; r < count; r++) {
                Vec<float> sum = products(here.at + r * width, of_rows, width);
                if (!program.layers.empty()) sum += products(both.at + r * 2 * width, of_both, 2 * width);
                answers[r * program.out_channels + c] = total<LANES<float>>(sum) * scale + origin;
            }
        }
    }

    static Vec<float> products(Floats a, Floats b, int64_t count) {
        Vec<float> sums = {};
        for (int64_t first = 0; first < count; first += LANES<float>)
            sums += load(a + first, count - first) * load(b + first, count - first);
        return sums;
    }

    template <int N> struct Row { typedef float type __attribute__((vector_size(4 * N))); };

    // The sum of N numbers.
    template <int N> static float total(typename Row<N>::type row) {
        if constexpr (N == 4) {
            return (row[0] + row[2]) + (row[1] + row[3]);
        } else {
            typename Row<N / 2>::type halves[2];
            memcpy(halves, &row, sizeof row);
            return total<N / 2>(halves[0] + halves[1]);
        }
    }

    bool answer(
        float* answers, const Samples* given, const std::vector<std::vector<int64_t>>& firsts, int64_t item, Floats points,
        int64_t num_points
    ) {
        find_frame(given, firsts, item);
        std::fill(states.at, states.at + mesh.num_nodes * program.latent, 0.f);
        heard_boxes.clear(), num_boxes.clear();
        for (size_t i = 0; i < program.functions.size(); i++) {
            const Function& f = program.functions[i];
            int64_t begin = firsts[i][item], count = firsts[i][item + 1] - begin;
            in_units(f, given[i].values + begin * f.channels, count);
            for (float value : told)
                if (!std::isfinite(value)) return false;
            if (!boxes.find(given[i].points + begin * dim, told.data(), f.channels, count)) return false;
            if (f.hears && int64_t(boxes.values.size()) / f.channels > program.num_heard) return false;
            write(f);
        }
        propagate();
        for (int64_t first = 0; first < num_points; first += BLOCK) {
            int64_t count = std::min(BLOCK, num_points - first);
            Floats next_box = heard_boxes.data();
            float* heard = gathered.at;
            take(points + first * dim, count);
            read(count);
            size_t number = 0;
            for (const Function& f : program.functions)
                if (f.hears) {
                    hear(heard += hidden, f.ear, next_box, num_boxes[number], count);
                    next_box += num_boxes[number++] * (2 * hidden + 2 * dim);
                }
            Matrix<const float> both{gathered.at, gathered_size};
            product<float>({rows.at, width}, {}, both, {program.into, width}, count, gathered_size, width);
            decode(answers + first * program.out_channels, count);
        }
        return true;
    }
};

}  // namespace

// 1 if there are answers, 0 if it was not possible, -1 if there was too little memory, -2 if plan and weights do not fit.
extern "C" int linear_answers(
    const int64_t* plan, Floats weights, int64_t num_weights, const Mesh* mesh, const Samples* given, const Samples* queries,
    int64_t num_items, int threads, float* answers
) {
    try {
        Program program(plan, weights, num_weights);
        if (!program.whole) return -2;
        std::vector<std::vector<int64_t>> firsts(program.functions.size());
        std::vector<int64_t> asked;
        if (!starts_of(asked, queries->items, queries->count, num_items)) return 0;
        for (size_t i = 0; i < firsts.size(); i++)
            if (!starts_of(firsts[i], given[i].items, given[i].count, num_items)) return 0;
        std::atomic<int> state{1};
        std::atomic<int64_t> next{0};  // each thread takes the next item
        threads = int(std::min<int64_t>(threads, num_items));
#pragma omp parallel num_threads(threads) if (threads > 1)
        try {  // no exception may leave a thread
            Worker worker(program, *mesh);
            for (int64_t i; state == 1 && (i = next++) < num_items;) {
                int64_t first = asked[i], count = asked[i + 1] - first;
                float* to = answers + first * program.out_channels;
                if (!worker.answer(to, given, firsts, i, queries->points + first * program.dim, count)) state = 0;
            }
        } catch (const std::bad_alloc&) {
            state = -1;
        }
        return state;
    } catch (const std::bad_alloc&) {
        return -1;
    }
}
