// What samples of equal values stand for together, the box around them, for one item: `sample_boxes.py` in C++.
#pragma once

#include "matrices.h"

#include <numeric>
#include <vector>

namespace {

using Floats = const float*;
constexpr int64_t MOST_ALIKE = 128;  // samples of one value, each of which is compared with all others

struct Boxes {
    std::vector<float> low, high, values;

    // `thinnest`: what boxes share along an axis has to be more; `on_side`: samples so near to a box are in it.
    Boxes(int64_t dim, float thinnest, float on_side) : dim(dim), thinnest(thinnest), on_side(on_side) {}

    // The boxes around samples of equal values, and what two of them share, in `low`, `high` and `values`; false where samples
    // are too many, or one is alone.
    bool find(Floats points, Floats told, int64_t channels, int64_t count) {
        order.resize(count);
        std::iota(order.begin(), order.end(), 0);
        auto value = [&](int64_t r) { return told + r * channels; };
        std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
            for (int64_t c = 0; c < channels; c++)
                if (value(a)[c] != value(b)[c]) return value(a)[c] < value(b)[c];
            return a < b;
        });
        starts.clear(), low.clear(), high.clear(), values.clear();
        for (int64_t begin = 0, end; begin < count; begin = end) {
            end = begin + 1;
            while (end < count && std::equal(value(order[begin]), value(order[begin]) + channels, value(order[end]))) end++;
            if (!find_pieces(points, begin, end)) return false;
        }
        int64_t pieces = starts.size();
        starts.push_back(count);
        for (int64_t b = 0; b < pieces; b++) {
            int64_t begin = starts[b];
            if (starts[b + 1] - begin == 1) return false;
            for (int64_t d = 0; d < dim; d++) {
                float least = points[order[begin] * dim + d], most = least;
                for (int64_t r = begin; r < starts[b + 1]; r++) {
                    least = std::min(least, points[order[r] * dim + d]);
                    most = std::max(most, points[order[r] * dim + d]);
                }
                low.push_back(least), high.push_back(most);
            }
            values.insert(values.end(), value(order[begin]), value(order[begin]) + channels);
        }
        for (int64_t a = 0; a < pieces; a++)
            for (int64_t b = a + 1; b < pieces; b++)
                if (shares(a, b)) add_shared(points, a, b, channels);
        return int64_t(values.size()) / channels - pieces <= count;
    }

  private:
    int64_t dim;
    float thinnest, on_side;
    std::vector<float> squared;
    std::vector<int64_t> order, starts;  // of samples piece by piece

    // Whether each of so many samples but the first is joined to one before it, as where they are listed along a line: then they
    // are one piece. `squared` has their distances.
    bool in_order(int64_t count) const {
        for (int64_t k = 1; k < count; k++) {
            Floats away = &squared[k * count];
            float nearest = away[0];
            for (int64_t j = 1; j < k; j++) nearest = away[j] < nearest ? away[j] : nearest;
            int32_t rank = 0;
            for (int64_t j = 0; j < count; j++) rank += away[j] <= nearest;
            if (rank > 2 * dim + 1) return false;
        }
        return true;
    }

    // Puts the samples of one value in the order of pieces, and tells where each begins: neighbours lead from every sample of a
    // piece to all others of it, if each is joined to the 2 dim nearest. False where there are too many.
    bool find_pieces(Floats points, int64_t begin, int64_t end) {
        int64_t count = end - begin, joined = 2 * dim + 1, *members = &order[begin], piece[MOST_ALIKE], near[MOST_ALIKE];
        float places[MOST_ALIKE];
        if (count < 2 * joined) {  // there is no room for two
            starts.push_back(begin);
            return true;
        }
        if (count > MOST_ALIKE) return false;
        std::iota(piece, piece + count, 0);
        squared.assign(count * count, 0);
        for (int64_t d = 0; d < dim; d++) {
            for (int64_t j = 0; j < count; j++) places[j] = points[members[j] * dim + d];
            for (int64_t k = 0; k < count; k++) {
                float *row = &squared[k * count], here = places[k];
                for (int64_t j = 0; j < count; j++) row[j] += (here - places[j]) * (here - places[j]);
            }
        }
        if (in_order(count)) {
            starts.push_back(begin);
            return true;
        }
        for (int64_t k = 0; k < count; k++) {
            Floats away = &squared[k * count];
            for (int64_t j = 0; j < count; j++) {  // the nearest ones first; of equally near ones the first
                if (j >= joined && !(away[j] < away[near[joined - 1]])) continue;
                int64_t place = std::min(j, joined - 1);
                for (; place > 0 && away[j] < away[near[place - 1]]; place--) near[place] = near[place - 1];
                near[place] = j;
            }
            for (int64_t j = 0; j < joined; j++) {
                int64_t from = piece[near[j]], to = piece[k];
                if (from != to) std::replace(piece, piece + count, from, to);
            }
        }
        std::iota(near, near + count, 0);
        std::sort(near, near + count, [&](int64_t i, int64_t j) { return piece[i] != piece[j] ? piece[i] < piece[j] : i < j; });
        std::vector<int64_t> before(members, members + count);
        for (int64_t k = 0; k < count; k++) {
            members[k] = before[near[k]];
            if (k == 0 || piece[near[k]] != piece[near[k - 1]]) starts.push_back(begin + k);
        }
        return true;
    }

    bool shares(int64_t a, int64_t b) const {
        for (int64_t d = 0; d < dim; d++) {
            bool thick = high[a * dim + d] - low[a * dim + d] > thinnest && high[b * dim + d] - low[b * dim + d] > thinnest;
            float shared = std::min(high[a * dim + d], high[b * dim + d]) - std::max(low[a * dim + d], low[b * dim + d]);
            if (!thick || !(shared > thinnest)) return false;
        }
        return true;
    }

    // What two boxes share, with the negative of the value that is covered there: samples in it tell which one that is.
    void add_shared(Floats points, int64_t a, int64_t b, int64_t channels) {
        for (int64_t d = 0; d < dim; d++) {
            float least = std::max(low[a * dim + d], low[b * dim + d]), most = std::min(high[a * dim + d], high[b * dim + d]);
            low.push_back(least), high.push_back(most);
        }
        const float *least = &low[low.size() - dim], *most = &high[high.size() - dim];
        int64_t inside[2] = {0, 0}, of[2] = {a, b};
        for (int k = 0; k < 2; k++)
            for (int64_t r = starts[of[k]]; r < starts[of[k] + 1]; r++) {
                bool in = true;
                for (int64_t d = 0; d < dim; d++) {
                    float x = points[order[r] * dim + d];
                    in = in && x >= least[d] - on_side && x <= most[d] + on_side;
                }
                inside[k] += in;
            }
        int64_t both = inside[0] + inside[1];
        float covered = both ? float(inside[1]) / both : 0.5f;  // how much of the first one
        for (int64_t c = 0; c < channels; c++) {
            float first = values[a * channels + c], second = values[b * channels + c];
            values.push_back(-second + covered * (second - first));
        }
    }
};

}  // namespace
