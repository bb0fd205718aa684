// Who may attend to whom, as one value that every attention op takes. A mask is an AND of
// predicates (causal, window, chunk, segments, positions, lengths, dense tensors, unions); causal,
// window, chunk and segment masks are never written out as Sq x Sk. It lives on the host.
//
//   auto mask = mask_info::from_segments(view(ids, {B, S}));
//   mask->apply_causal();
//   auto kept = mask->apply_to(args, options);   // holds what the views in args point to
//   flash_attention(args, options);
//
// Row i, key j, batch entry b and head h count from 0; offsets are given once for all entries or
// once for each. Extents and offsets are below 2^31.
#pragma once

#include <tessera/api/mask_info/build.hpp>
#include <tessera/api/mask_info/combine.hpp>
#include <tessera/api/mask_info/conversions.hpp>
#include <tessera/api/mask_info/declaration.hpp>
#include <tessera/api/mask_info/lowering.hpp>
#include <tessera/api/mask_info/query.hpp>
