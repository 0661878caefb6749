// out_i = Σ_j w_ij v_j / Σ_j w_ij and lse_i = ln Σ_j w_ij, in one pass over the tiles within reach.
#pragma once

#include "plain.h"

namespace fillin {

// r.p = W e^(exponent − maximum) for the rows of a tile; `total` sums them up for each query, lane by lane.
template <bool WILD, int D>
void weigh(const Window<D> &window, Rows &r, float *most, vec *total, Accumulated &out) {
  const int rows = r.rows;
  const bool continuous = window.continuous, scores = window.scores;
  for (int n = 0; n < rows; n++) {
    const int i = r.query[n];
    vec e = WILD ? window.wild_exponent(r, n) : exponent(r, n, scores);
    float peak = most[i];
    if (any(e > peak + SLACK)) {
      float now = !WILD && peak == -INFINITY && e[0] > 0.5f * NEVER && !any(e > e[0] + 8.f) ? e[0] : largest(e);
      if (peak > -INFINITY) {
        float factor = std::exp(peak - now);
        total[i] *= factor;
        out.scale(i, factor);
      }
      most[i] = peak = now;
    }
    vec weight = WILD ? window.wild_exponential(r, n, e - peak) : exponential(e - peak);
    if (continuous) weight *= load(r.weight + n * L);
    total[i] += weight;
    store(r.p + n * L, weight);
  }
}

template <int D>
void forward_item(const FillinProblem &p, Item item, Workspace<D> &space) {
  Work<D> work(p, item, space);
  const std::vector<int32_t> &index = space.tiles.index;
  Packed keys = work.keys(false);
  Packed values = pack(p.v, item, p.value_width, index, space.v_columns, space.v_rows, true, false);
  Accumulated out = accumulator(p.value_width, space.sums, space.lanes);
  Rows &r = space.rows;
  const PlainWindow<D> ball(work.window);
  const bool plain = ball.fits(p, work.window);

  work.blocks({&p.q}, [&](const Block<D> &block) {
    const float *q = work.take(p.q, p.width, p.scale, block, space.q);
    const float *g = p.features.values ? work.take(p.g, p.features_width, 1, block, space.g) : nullptr;
    float most[BLOCK];
    vec total[BLOCK];
    for (int i = 0; i < BLOCK; i++) most[i] = -INFINITY, total[i] = vec{};
    out.clear();
    const bool wild = work.wild(block, q, g);
    for (int tile : space.found) {
      if (plain && !wild) {
        work.find(block, tile);
        if (!r.rows) continue;
        in_kind(work.window.continuous, p.width, [&]<int WIDTH, bool CONTINUOUS>() {
          plain_forward<WIDTH, CONTINUOUS>(ball, q, p.width, keys.columns_of(tile), r, most, total, out);
        });
        mix(r.p, values.rows_of(tile), values.columns_of(tile), r, out);
        continue;
      }
      work.score(block, tile, q, g, keys, wild);
      if (wild) weigh<true>(work.window, r, most, total, out);
      else weigh<false>(work.window, r, most, total, out);
      if (r.rows) mix(r.p, values.rows_of(tile), values.columns_of(tile), r, out);
    }
    out.finish(block.count);
    sum_lanes(reinterpret_cast<float *>(total), block.count);
    for (int i = 0; i < block.count; i++) {
      float sum_i = reinterpret_cast<const float *>(total)[i], inverse = sum_i != 0 ? 1 / sum_i : 0;
      out.write(i, inverse, item.of(p.out) + block.index[i] * p.out.row);
      p.lse[item.flat(p) * p.queries + block.index[i]] = sum_i != 0 ? most[i] + std::log(sum_i) : -INFINITY;
    }
  });
}

}  // namespace fillin
