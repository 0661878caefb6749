// Shared by forward and backward: an item of work, its keys packed into tiles, and its blocks of queries.
#pragma once

#include "forms.h"
#include "table.h"

namespace fillin {

// One batch and head, or part `part` of `parts` of its queries.
struct Item {
  int b, h, part, parts;

  float *of(const FillinRows &rows) const { return rows.data + b * rows.batch + h * rows.head; }
  size_t flat(const FillinProblem &p) const { return (size_t)b * p.heads + h; }
};

// The distribution of work. Queries are split into parts where batches and heads are fewer than threads. Items of one
// head form groups. The items of a group run one after another, so that they can add to one copy of a table.
struct Plan {
  int heads, batch, parts, per_head, groups;

  explicit Plan(const FillinProblem &p) : heads(p.heads), batch(p.batch), parts(1) {
    int items = p.batch * p.heads, blocks = up(p.queries, BLOCK);
    while (parts < p.threads && items * parts % p.threads != 0 && items * parts < 4 * p.threads) parts++;
    parts = std::max(1, std::min(parts, blocks));
    per_head = std::min(batch * parts, up(4 * p.threads, heads));
    groups = heads * per_head;
  }

  int head(int group) const { return group / per_head; }

  // Call `use(item)` for the items of one group.
  template <class Use>
  void each(int group, Use use) const {
    int all_items = batch * parts, place = group % per_head;
    for (int i = all_items * place / per_head; i < all_items * (place + 1) / per_head; i++)
      use(Item{i / parts, head(group), i % parts, parts});
  }

  // Index of an item's part of dK and dV, where queries are split.
  size_t slot(const Item &item) const { return ((size_t)item.b * heads + item.h) * parts + item.part; }
};

inline const float *table_of(const FillinTable &table, int head, int width) {
  size_t nodes = 1;
  for (int d = 0; d < table.dims; d++) nodes *= table.size[d];
  return table.values ? table.values + head * nodes * width : nullptr;
}

inline size_t table_size(const FillinTable &table, int width) {
  if (!table.values) return 0;
  size_t nodes = 1;
  for (int d = 0; d < table.dims; d++) nodes *= table.size[d];
  return nodes * width;
}

// The buffers of one thread, reused for all its items.
template <int D>
struct Workspace {
  Tiles<D> tiles;
  std::vector<int32_t> found;
  Scratch k_columns, k_rows, v_columns, v_rows, dk, dv, q, g, d_out, sums, lanes, dq_sums, dq_lanes, dg, dxq, dxk;
  Rows rows;
  Cells bias_cells, features_cells;
};

// `by_row`: also by rows; `by_column` = false: columns are packed only where a rest of the rows does not fill a vector.
inline Packed pack(const FillinRows &matrix, const Item &item, int width, const std::vector<int32_t> &index,
                   Scratch &columns, Scratch &full, bool by_row, bool by_column = true) {
  Packed packed;
  packed.width = width, packed.whole = by_row ? width / L * L : 0;
  packed.columns = columns.get(index.size() * width + L);
  packed.full = full.get(index.size() * packed.whole + L);
  const float *data = item.of(matrix);
  if (by_column || width > packed.whole) pack_columns(data, matrix.row, width, index, packed.columns);
  if (packed.whole) pack_rows(data, matrix.row, packed.whole, index, packed.full);
  return packed;
}

inline Accumulated accumulator(int width, Scratch &sums, Scratch &lanes) {
  int whole = width / L * L;
  return {width, whole, sums.get((size_t)BLOCK * whole + L), lanes.get((size_t)BLOCK * (width - whole) * L + L)};
}

// A prepared item: keys in tiles with bounding boxes, and the window of its head.
template <int D>
struct Work {
  const FillinProblem &p;
  Item item;
  Workspace<D> &space;
  Window<D> window;
  Frame<D> frame;
  const float *xq;
  const int32_t *order;
  const float *bias, *features;
  PairMask pairs;
  Form<D> forms[FILLIN_MAX_FORMS];
  bool tame_forms = true;
  float key_square = 0, bias_square = 0, features_square = 0;  // sums of squares

  Work(const FillinProblem &problem, Item item_, Workspace<D> &space_)
      : p(problem), item(item_), space(space_), window(problem, item_.h), xq(p.xq + (size_t)item.b * p.queries * D),
        order(p.order_q ? p.order_q + (size_t)item.b * p.queries : nullptr), bias(table_of(p.bias, item.h, 1)),
        features(table_of(p.features, item.h, p.features_width)),
        pairs{p.pairs ? p.pairs + item.b * p.pairs_batch + item.h * p.pairs_head : nullptr, p.pairs_row} {
    const float *xk = p.xk + (size_t)item.b * p.keys * D;
    const uint8_t *keep = p.keep ? p.keep + (size_t)item.b * p.keys : nullptr;
    space.tiles.place(xk, p.order_k ? p.order_k + (size_t)item.b * p.keys : nullptr, keep, p.keys);
    frame = window.frame(xq);
    if (window.open) {  // all tiles are within reach
      space.found.resize(space.tiles.count);
      for (int t = 0; t < space.tiles.count; t++) space.found[t] = t;
    } else {
      space.tiles.enclose(xk, frame);
    }
    for (int f = 0; f < p.forms; f++) forms[f] = Form<D>(p.form[f], item.h), tame_forms &= forms[f].tame();
    if (p.forms) tame_forms &= squares(xq, (size_t)p.queries * D) + squares(xk, (size_t)p.keys * D) < 1e30f;
    bias_square = squares(bias, table_size(p.bias, 1));
    features_square = squares(features, table_size(p.features, p.features_width));
  }

  // Pack the keys of this item into tiles.
  Packed keys(bool by_row) {
    const std::vector<int32_t> &index = space.tiles.index;
    Packed packed = pack(p.k, item, p.width, index, space.k_columns, space.k_rows, by_row);
    key_square = squares(packed.columns, index.size() * p.width);
    return packed;
  }

  // Call `use(block)` for each block of this item's queries, with the tiles within its reach in space.found. The rows of
  // `read` that the next block reads are prefetched.
  template <class Use>
  void blocks(std::initializer_list<const FillinRows *> read, Use use) {
    int total = up(p.queries, BLOCK), first = total * item.part / item.parts, last = total * (item.part + 1) / item.parts;
    Block<D> block;
    for (int n = first; n < last; n++) {
      Box<D> box;
      box.clear();
      block.count = std::min(BLOCK, p.queries - n * BLOCK);
      for (int i = 0; i < block.count; i++) {
        int32_t query = block.index[i] = order ? order[n * BLOCK + i] : n * BLOCK + i;
        for (int d = 0; d < D; d++) block.x[i][d] = xq[(size_t)query * D + d];
        if (window.open) continue;
        float u[D];
        frame.add(box, block.x[i], u);
        for (int d = 0; d < D; d++) block.u[d][i] = u[d];
      }
      if (const int next = (n + 1) * BLOCK; order && n + 1 < last)
        for (const FillinRows *rows : read)
          if (rows->data)
            prefetch_rows(item.of(*rows), rows->row, L, order + next, std::min(BLOCK, p.queries - next));
      if (!window.open) {
        frame.widen(box);
        space.tiles.find(box, frame, space.found);
      }
      use(block);
    }
  }

  // Whether a score of the block may be infinite or NaN, by the Cauchy–Schwarz inequality.
  bool wild(const Block<D> &block, const float *q, const float *g) const {
    constexpr float TAME = 1e30f;  // of a square
    bool tame = squares(q, (size_t)block.count * p.width) * key_square < TAME && bias_square < TAME && tame_forms;
    return !(tame && (!g || squares(g, (size_t)block.count * p.features_width) * features_square < TAME));
  }

  // Whether R is read at its nodes, a vector at a time. Not where a masked pair with NaN could affect others.
  bool nodes(bool wild) const { return p.features.exact && p.features_width % L == 0 && !wild; }

  // The rows of a block of queries, contiguous and multiplied by `scale`.
  const float *take(const FillinRows &matrix, int width, float scale, const Block<D> &block, Scratch &scratch) const {
    float *rows = scratch.get((size_t)BLOCK * width + L);
    const float *data = item.of(matrix);
    for (int i = 0; i < block.count; i++) {
      const float *from = data + block.index[i] * matrix.row;
      float *to = rows + (size_t)i * width;
      int c = 0;
      for (; c + L <= width; c += L) store(to + c, scale * load(from + c));
      for (; c < width; c++) to[c] = scale * from[c];
    }
    return rows;
  }

  // Find the rows of one tile with a pair inside a plain window.
  void find(const Block<D> &block, int tile) const {
    window.find_plain(block, space.tiles.levels[0][tile], space.tiles.x.data() + (size_t)tile * D * L,
                      space.tiles.index.data() + (size_t)tile * L, space.rows);
  }

  // Find the pairs of one tile inside the window, and compute their scores s.
  void score(const Block<D> &block, int tile, const float *q, const float *g, const Packed &keys, bool wild) const {
    Rows &r = space.rows;
    const float *x = space.tiles.x.data() + (size_t)tile * D * L;
    const Box<D> *around = window.open ? nullptr : &space.tiles.levels[0][tile];
    window.enter(block, around, x, space.tiles.index.data() + (size_t)tile * L, pairs, r);
    if (!r.rows) return;
    dot(q, p.width, keys.columns_of(tile), nullptr, r, r.s);
    for (int f = 0; f < p.forms; f++) forms[f].add(block, x, wild, r, r.form[f]);
    if (bias) with_grid<D>(p.bias, [&](const auto &grid) {
      grid.locate(block, x, r, space.bias_cells);
      add_bias(grid, bias, space.bias_cells, r);
    });
    if (features) with_grid<D>(p.features, [&]<int T>(const Grid<D, T> &grid) {
      grid.locate(block, x, r, space.features_cells);
      if (nodes(wild)) {
        for (int i = 0; i < r.rows; i++)
          nodes_dot(g + (size_t)r.query[i] * p.features_width, features, p.features_width,
                    space.features_cells.first + i * L, r.s + i * L);
        return;
      }
      each_pair(grid, space.features_cells, r, [&](int i, int l, const int *corner, const float *share) {
        const float *a = g + (size_t)r.query[i] * p.features_width;
        r.s[i * L + l] += features_dot<T>(a, features, p.features_width, corner, share);
      });
    });
  }
};

}  // namespace fillin
