// Gradients, by the same pass over tiles, with lse known. With p_ij = w_ij / Σ_j w_ij:
//
//     dV_j  = Σ_i p_ij dO_i
//     dE_ij = p_ij (dO_i · v_j − dO_i · out_i + d lse_i)       to the exponent and to ln W
//     dS_ij = dE_ij (· G_ij where the window multiplies scores)
//     dQ_i  = scale Σ_j dS_ij k_j        dK_j = scale Σ_i dS_ij q_i
#pragma once

#include "plain.h"

namespace fillin {

// Sums over items: one copy per group of items, added up afterwards in the order of the groups.
struct Shares {
  std::vector<double> inverse;        // [groups, D, D]
  std::vector<float> bias, features;  // [groups, nodes …]
  std::vector<float> d_k, d_v;        // [items, keys, width], only where queries are split into parts
  std::vector<double> forms;          // [groups, forms, D + 1]: length scales, then the amplitude
  std::vector<float> d_xq, d_xk;      // [items, queries, D], [items, keys, D]: heads share their locations

  Shares(const FillinProblem &p, const FillinGradients &to, const Plan &plan)
      : inverse((size_t)plan.groups * p.dim_x * p.dim_x), bias(to.d_bias ? plan.groups * table_size(p.bias, 1) : 0),
        features(plan.groups * table_size(p.features, p.features_width)) {
    size_t items = plan.parts > 1 ? (size_t)p.batch * p.heads * plan.parts * p.keys : 0;
    d_k.resize(items * p.width), d_v.resize(items * p.value_width);
    forms.resize((size_t)plan.groups * p.forms * (p.dim_x + 1));
    size_t copies = (size_t)p.batch * p.heads * plan.parts * p.dim_x;
    d_xq.resize(to.d_xq ? copies * p.queries : 0), d_xk.resize(to.d_xk ? copies * p.keys : 0);
  }
};

// The weights r.p of the rows of a tile again, and from d ln(weight) in r.ds the gradients to scores and to ln W.
template <bool WILD, int D>
void unweigh(const Window<D> &window, Rows &r, const float *lse) {
  const int rows = r.rows;
  const bool open = window.open, continuous = window.continuous, scores = window.scores;
  for (int n = 0; n < rows; n++) {
    vec d_log = load(r.ds + n * L), weight;
    if (WILD) weight = window.wild_exponential(r, n, window.wild_exponent(r, n) - lse[r.query[n]]);
    else weight = exponential(exponent(r, n, scores) - lse[r.query[n]]);
    if (!open) store(r.pull + n * L, weight * d_log);
    if (continuous) weight *= load(r.weight + n * L);
    store(r.p + n * L, weight);
    store(r.ds + n * L, scores ? weight * d_log * load(r.gauss + n * L) : weight * d_log);
  }
}

template <int D>
void backward_item(const FillinProblem &p, const FillinGradients &to, const Plan &plan, int group, Item item,
                   Workspace<D> &space, Shares &shares) {
  Work<D> work(p, item, space);
  const Window<D> &window = work.window;
  const std::vector<int32_t> &index = space.tiles.index;
  Packed keys = work.keys(true);
  Packed values = pack(p.v, item, p.value_width, index, space.v_columns, space.v_rows, false);
  Accumulated dq = accumulator(p.width, space.dq_sums, space.dq_lanes);
  Packed dk = keys, dv = values;
  dk.columns = space.dk.get(index.size() * p.width + L), dv.columns = space.dv.get(index.size() * p.value_width + L);
  memset(dk.columns, 0, index.size() * p.width * sizeof(float));
  memset(dv.columns, 0, index.size() * p.value_width * sizeof(float));
  bool windowed = to.d_inverse && !window.open;
  float *d_bias = to.d_bias ? &shares.bias[group * table_size(p.bias, 1)] : nullptr;
  float *d_features = p.features.values ? &shares.features[group * table_size(p.features, p.features_width)] : nullptr;
  double d_inverse[D][D] = {}, d_forms[FILLIN_MAX_FORMS][D + 1] = {};
  float *dxq = to.d_xq ? space.dxq.get((size_t)BLOCK * D * L) : nullptr;
  float *dxk = to.d_xk ? space.dxk.get(index.size() * D) : nullptr;
  if (dxk) memset(dxk, 0, index.size() * D * sizeof(float));
  Rows &r = space.rows;
  const PlainWindow<D> ball(window);
  const bool plain = ball.fits(p, window);

  work.blocks({&p.q, &p.out, &to.d_out}, [&](const Block<D> &block) {
    const float *q = work.take(p.q, p.width, p.scale, block, space.q);
    const float *g = p.features.values ? work.take(p.g, p.features_width, 1, block, space.g) : nullptr;
    const float *d_out = work.take(to.d_out, p.value_width, 1, block, space.d_out);
    float *d_g = space.dg.get((size_t)BLOCK * p.features_width + L);
    memset(d_g, 0, (size_t)BLOCK * p.features_width * sizeof(float));
    dq.clear();
    float lse[BLOCK], start[BLOCK], products[BLOCK * L];  // d lse_i − dO_i · out_i
    for (int i = 0; i < block.count; i++)
      store(products + i * L, product_lanes(d_out + (size_t)i * p.value_width,
                                            item.of(p.out) + block.index[i] * p.out.row, p.value_width));
    sum_lanes(products, block.count);
    for (int i = 0; i < block.count; i++) {
      size_t at = item.flat(p) * p.queries + block.index[i];
      lse[i] = p.lse[at] == -INFINITY ? INFINITY : p.lse[at];
      start[i] = (to.d_lse ? to.d_lse[at] : 0) - products[i];
    }
    vec d_window[D][D] = {}, d_scale[FILLIN_MAX_FORMS][D] = {}, d_amplitude[FILLIN_MAX_FORMS] = {};
    if (dxq) memset(dxq, 0, (size_t)BLOCK * D * L * sizeof(float));
    const bool wild = work.wild(block, q, g);
    for (int tile : space.found) {
      const float *x = space.tiles.x.data() + (size_t)tile * D * L;
      if (plain && !wild) {
        work.find(block, tile);
        if (!r.rows) continue;
        vec along[D] = {};
        in_kind(window.continuous, p.width == p.value_width ? p.width : 0, [&]<int WIDTH, bool CONTINUOUS>() {
          plain_backward<WIDTH, CONTINUOUS>(ball, block, x, q, p.width, keys.columns_of(tile), d_out, p.value_width,
                                            values.columns_of(tile), lse, start, r, along);
        });
        for (int d = 0; d < D; d++) d_window[d][d] += along[d];
        spread(r.p, d_out, p.value_width, r, dv.columns_of(tile));
        if (p.width) {
          mix(r.ds, keys.rows_of(tile), keys.columns_of(tile), r, dq);
          spread(r.ds, q, p.width, r, dk.columns_of(tile));
        }
        continue;
      }
      work.score(block, tile, q, g, keys, wild);
      if (!r.rows) continue;
      dot(d_out, p.value_width, values.columns_of(tile), start, r, r.ds);
      if (wild) unweigh<true>(window, r, lse);
      else unweigh<false>(window, r, lse);
      if (windowed) window.back(block, x, r, d_window);
      for (int f = 0; f < p.forms; f++)
        work.forms[f].back(block, x, r, r.form[f], d_scale[f], d_amplitude[f], dxq,
                           dxk ? dxk + (size_t)tile * D * L : nullptr);
      spread(r.p, d_out, p.value_width, r, dv.columns_of(tile));
      if (p.width) {
        mix(r.ds, keys.rows_of(tile), keys.columns_of(tile), r, dq);
        spread(r.ds, q, p.width, r, dk.columns_of(tile));
      }
      if (d_bias) with_grid<D>(p.bias, [&](const auto &grid) { bias_back(grid, space.bias_cells, r, d_bias); });
      if (d_features)
        with_grid<D>(p.features, [&]<int T>(const Grid<D, T> &grid) {
          if (work.nodes(wild)) {
            for (int n = 0; n < r.rows; n++) {
              size_t row = (size_t)r.query[n] * p.features_width;
              nodes_spread(r.ds + n * L, g + row, work.features, p.features_width, space.features_cells.first + n * L,
                           d_g + row, d_features);
            }
            return;
          }
          each_pair(grid, space.features_cells, r, [&](int n, int l, const int *corner, const float *share) {
            size_t row = (size_t)r.query[n] * p.features_width;
            features_spread<T>(r.ds[n * L + l], g + row, work.features, p.features_width, corner, share, d_g + row,
                               d_features);
          });
        });
    }
    dq.finish(block.count);
    for (int i = 0; i < block.count; i++) {
      if (p.width && to.d_q.data)
        dq.write(i, p.scale, item.of(to.d_q) + block.index[i] * to.d_q.row);
      if (d_features && to.d_g.data)
        memcpy(item.of(to.d_g) + block.index[i] * to.d_g.row, d_g + (size_t)i * p.features_width,
               p.features_width * sizeof(float));
    }
    if (dxq)
      for (int i = 0; i < block.count; i++)
        for (int d = 0; d < D; d++)
          shares.d_xq[(plan.slot(item) * p.queries + block.index[i]) * D + d] = sum(load(dxq + (i * D + d) * L));
    for (int d = 0; d < D; d++)
      for (int c = 0; c < D; c++) d_inverse[d][c] += sum(d_window[d][c]);
    for (int f = 0; f < p.forms; f++) {
      for (int d = 0; d < D; d++) d_forms[f][d] += sum(d_scale[f][d]);
      d_forms[f][D] += sum(d_amplitude[f]);
    }
  });
  for (int f = 0; f < p.forms; f++)
    for (int d = 0; d <= D; d++) shares.forms[((size_t)group * p.forms + f) * (D + 1) + d] += d_forms[f][d];
  if (dxk)
    for (size_t i = 0; i < index.size(); i++)
      for (int d = 0; index[i] >= 0 && d < D; d++)
        shares.d_xk[(plan.slot(item) * p.keys + index[i]) * D + d] = dxk[(i / L * D + d) * L + i % L];

  for (int d = 0; d < D; d++)
    for (int c = 0; c < D; c++) shares.inverse[((size_t)group * D + d) * D + c] += window.finish(d, c, d_inverse[d][c]);
  auto hand_back = [&](const Packed &packed, const FillinRows &rows, std::vector<float> &parted) {
    if (!rows.data) return;
    bool alone = item.parts == 1;
    float *data = alone ? item.of(rows) : parted.data() + plan.slot(item) * p.keys * packed.width;
    int64_t stride = alone ? rows.row : packed.width;
    if (space.tiles.keys < p.keys)  // masked keys are in no tile
      for (int j = 0; j < p.keys; j++) memset(data + j * stride, 0, packed.width * sizeof(float));
    unpack_columns(packed.columns, packed.width, index, data, stride);
  };
  hand_back(dk, to.d_k, shares.d_k);
  hand_back(dv, to.d_v, shares.d_v);
}

// Add up the groups and the parts of queries, in a fixed order.
inline void gather_shares(const FillinProblem &p, const FillinGradients &to, const Plan &plan, const Shares &shares) {
  if (to.d_inverse && p.window != FILLIN_OPEN) {
    int square = p.dim_x * p.dim_x;
    std::vector<double> total((size_t)p.heads * square);
    for (int g = 0; g < plan.groups; g++)
      for (int c = 0; c < square; c++) total[plan.head(g) * square + c] += shares.inverse[(size_t)g * square + c];
    for (size_t i = 0; i < total.size(); i++) to.d_inverse[i] = (float)total[i];
  }
  for (int f = 0; f < p.forms; f++) {
    const int dims = p.form[f].dims, width = p.dim_x + 1;
    std::vector<double> total((size_t)p.heads * width);
    for (int g = 0; g < plan.groups; g++)
      for (int d = 0; d < width; d++)
        total[plan.head(g) * width + d] += shares.forms[((size_t)g * p.forms + f) * width + d];
    for (int h = 0; h < p.heads; h++) {
      if (to.d_amplitude[f]) to.d_amplitude[f][h] = (float)total[h * width + p.dim_x];
      if (!to.d_log_scale[f]) continue;
      double all_dims = 0;  // one length scale for all dimensions
      for (int d = 0; d < p.dim_x; d++) all_dims += total[h * width + d];
      for (int d = 0; d < dims; d++) to.d_log_scale[f][h * dims + d] = (float)(dims == 1 ? all_dims : total[h * width + d]);
    }
  }
  auto add_heads = [&](const std::vector<float> &from, int points, float *to_x) {
    if (!to_x) return;
    const size_t size = (size_t)points * p.dim_x;
    memset(to_x, 0, p.batch * size * sizeof(float));
    for (size_t i = 0; i < (size_t)p.batch * p.heads * plan.parts; i++)
      for (size_t j = 0; j < size; j++) to_x[i / (p.heads * plan.parts) * size + j] += from[i * size + j];
  };
  add_heads(shares.d_xq, p.queries, to.d_xq);
  add_heads(shares.d_xk, p.keys, to.d_xk);
  auto add_tables = [&](const std::vector<float> &from, size_t size, float *table) {
    if (!table || !size) return;
    memset(table, 0, size * p.heads * sizeof(float));
    for (int g = 0; g < plan.groups; g++)
      for (size_t i = 0; i < size; i++) table[plan.head(g) * size + i] += from[g * size + i];
  };
  add_tables(shares.bias, table_size(p.bias, 1), to.d_bias);
  add_tables(shares.features, table_size(p.features, p.features_width), to.d_features);
  auto add_parts = [&](const std::vector<float> &from, const FillinRows &rows, int width) {
    if (plan.parts == 1 || !rows.data) return;
    for (int i = 0; i < p.batch * p.heads * plan.parts; i++) {
      Item item{i / plan.parts / p.heads, i / plan.parts % p.heads, i % plan.parts, plan.parts};
      const float *part = from.data() + plan.slot(item) * p.keys * width;
      for (int j = 0; j < p.keys; j++)
        for (int c = 0; c < width; c++) {
          float &to = item.of(rows)[j * rows.row + c];
          to = (item.part ? to : 0.f) + part[(size_t)j * width + c];
        }
    }
  };
  add_parts(shares.d_k, to.d_k, p.width);
  add_parts(shares.d_v, to.d_v, p.value_width);
}

}  // namespace fillin
