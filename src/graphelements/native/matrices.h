// Rows of numbers in vectors, and products of matrices that are in the cache.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <new>
#include <optional>
#include <type_traits>

namespace {

#ifdef __AVX512F__
constexpr int BYTES = 64, ROWS = 8, COLUMNS = 3;  // of a tile: accumulators fill the registers
#else
constexpr int BYTES = 32, ROWS = 6, COLUMNS = 2;
#endif
constexpr int64_t BLOCK = 144;  // rows that are in the cache together: a multiple of both heights of tiles

template <class T> struct Vector { typedef T type __attribute__((vector_size(BYTES))); };
template <class T> using Vec = typename Vector<T>::type;
template <class T> constexpr int LANES = BYTES / sizeof(T);

// So many numbers, known to the compiler, or fewer at the end of a row.
template <int64_t N> using Count = std::integral_constant<int64_t, N>;

template <class T> inline Vec<T> load(const T* from, int64_t count) {
    Vec<T> row{};
    if (count >= LANES<T>) memcpy(&row, from, sizeof row);
    else memcpy(&row, from, count * sizeof(T));
    return row;
}

template <class T> inline void store(T* to, Vec<T> row, int64_t count) {
    if (count >= LANES<T>) memcpy(to, &row, sizeof row);
    else memcpy(to, &row, count * sizeof(T));
}

// A matrix of rows that are `row` numbers apart, and columns that are `column` apart.
template <class T> struct Matrix {
    T* at = nullptr;
    int64_t row = 0, column = 1;
    Matrix below(int64_t rows) const { return {at + rows * row, row, column}; }
    Matrix right(int64_t columns) const { return {at + columns * column, row, column}; }
    operator Matrix<const T>() const { return {at, row, column}; }
    Matrix turned() const { return {at, column, row}; }
};

// Calls `each(first column, how many columns, number of vectors)` for pieces of a row of at most MOST vectors, about equally many
// in each. The number of vectors is a type, and so is that of columns but in a last piece that does not fill its vectors.
template <class T, int MOST = COLUMNS, class Each> inline void in_pieces(int64_t columns, Each each) {
    int64_t vectors = (columns + LANES<T> - 1) / LANES<T>, pieces = (vectors + MOST - 1) / MOST;
    for (int64_t piece = 0; piece < pieces; piece++) {
        int64_t begin = vectors * piece / pieces, number = vectors * (piece + 1) / pieces - begin, first = begin * LANES<T>;
        auto call = [&](auto chosen) {
            constexpr int C = decltype(chosen)::value;
            int64_t count = columns - first;
            if (count >= C * LANES<T>) each(first, Count<C * LANES<T>>(), chosen);
            else each(first, count, chosen);
        };
        if constexpr (MOST >= 3) {
            if (number == 3) call(std::integral_constant<int, 3>());
        }
        if (number == 2) call(std::integral_constant<int, 2>());
        if (number == 1) call(std::integral_constant<int, 1>());
    }
}

// Room for so many numbers, which are anything at first.
template <class T> struct Buffer {
    T* at;
    explicit Buffer(int64_t count) : at(static_cast<T*>(::operator new(count * sizeof(T) + 1, ALIGNMENT))) {}
    ~Buffer() { ::operator delete(at, ALIGNMENT); }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;

  private:
    static constexpr std::align_val_t ALIGNMENT{64};
};

// A tile of a product, of R rows and C vectors, of which so many columns count; `b` has whole vectors.
template <class T, int R, int C, class Columns, class After>
inline void tile(
    Matrix<T> to, Matrix<const T> from, Matrix<const T> a, Matrix<const T> b, int64_t depth, Columns columns, After after
) {
    Vec<T> sums[R][C], row[C];
    for (int r = 0; r < R; r++)
        for (int c = 0; c < C; c++)
            sums[r][c] = from.at ? load(from.at + r * from.row + c * LANES<T>, columns - c * LANES<T>) : Vec<T>{};
#pragma GCC unroll 4
    for (int64_t k = 0; k < depth; k++) {
        for (int c = 0; c < C; c++) row[c] = load(b.at + k * b.row + c * LANES<T>, LANES<T>);
        for (int r = 0; r < R; r++) {
            T factor = a.at[r * a.row + k * a.column];
            for (int c = 0; c < C; c++) sums[r][c] += factor * row[c];
        }
    }
    for (int r = 0; r < R; r++)
        for (int c = 0; c < C; c++) {
            T* here = to.at + r * to.row + c * LANES<T>;
            store<T>(here, after(sums[r][c], here - to.at, columns - c * LANES<T>), columns - c * LANES<T>);
        }
}

struct AsItIs {
    template <class V> V operator()(V x, int64_t, int64_t) const { return x; }
};

struct Relu {
    template <class V> V operator()(V x, int64_t, int64_t) const { return x < 0 ? V{} : x; }  // as in torch, NaN stays NaN
};

// to = after(from + a b), of so many rows, columns and products; `from` may be nothing, `to` itself, or one row for all. `after`
// is told what was found, how far from the beginning of `to` it goes, and how many numbers of it count.
template <class T, class After = AsItIs>
void product(
    Matrix<T> to, Matrix<const T> from, Matrix<const T> a, Matrix<const T> b, int64_t rows, int64_t depth, int64_t columns,
    After after = {}
) {
    in_pieces<T>(columns, [&](int64_t first, auto count, auto vectors) {
        constexpr int C = decltype(vectors)::value;
        Matrix<T> out = to.right(first);
        Matrix<const T> begin = from.at ? from.right(first) : from;
        Matrix<const T> panel = b.right(first);
        std::optional<Buffer<T>> copy;
        if (count < C * LANES<T>) {
            copy.emplace(depth * C * LANES<T>);
            for (int64_t k = 0; k < depth; k++)
                for (int c = 0; c < C; c++) {
                    Vec<T> part = load(panel.at + k * b.row + c * LANES<T>, count - c * LANES<T>);
                    store(copy->at + (k * C + c) * LANES<T>, part, LANES<T>);
                }
            panel = {copy->at, C * LANES<T>};
        }
        int64_t r = 0;
        auto next = [&](auto height) {
            constexpr int R = decltype(height)::value;
            tile<T, R, C>(
                out.below(r), begin.below(r), a.below(r), panel, depth, count,
                [&](Vec<T> x, int64_t at, int64_t left) { return after(x, r * to.row + first + at, left); });
            r += R;
        };
        while (r < rows) {
            int64_t left = rows - r;
            bool halves = ROWS == 6 && left == 8;  // 4 and 4, not 6 and 2: so few rows keep a processor waiting
            if (left >= ROWS && !halves) next(std::integral_constant<int, ROWS>());
            else if (left >= 4) next(std::integral_constant<int, 4>());
            else if (left >= 2) next(std::integral_constant<int, 2>());
            else next(std::integral_constant<int, 1>());
        }
    });
}

template <class T> void add_columns(T* to, Matrix<const T> rows, int64_t count, int64_t columns) {
    for (int64_t first = 0; first < columns; first += LANES<T>) {
        Vec<T> sum = load(to + first, columns - first);
        for (int64_t r = 0; r < count; r++) sum += load(rows.at + r * rows.row + first, columns - first);
        store(to + first, sum, columns - first);
    }
}

}  // namespace
