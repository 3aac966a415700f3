//! Memory for the values between segments: planned once, by who lives when.

/// A value to be placed: its length in bytes, and the first and last step at which it must hold its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub len: usize,
    pub first: usize,
    pub last: usize,
}

const ALIGN: usize = 64;

/// Offsets (multiples of 64) such that no two values that live at the same step overlap, and the length of the whole.
///
/// Large values first, each at the lowest place that is free during its life.
pub(super) fn place(requests: &[Request]) -> (Vec<usize>, usize) {
    let mut order: Vec<usize> = (0..requests.len()).collect();
    order.sort_by_key(|&k| (std::cmp::Reverse(requests[k].len), requests[k].first, k));
    let mut offsets = vec![0; requests.len()];
    // Places given away, ascending by offset.
    let mut placed: Vec<usize> = Vec::new();
    let mut total = 0;
    for k in order {
        let request = requests[k];
        let mut offset = 0;
        for &other in &placed {
            let (there, len) = (offsets[other], requests[other].len);
            let meets = requests[other].first <= request.last && request.first <= requests[other].last;
            if meets && there < offset + request.len && offset < there + len {
                offset = (there + len).next_multiple_of(ALIGN);
            }
        }
        offsets[k] = offset;
        total = total.max(offset + request.len);
        let at = placed.partition_point(|&other| offsets[other] <= offset);
        placed.insert(at, k);
    }
    (offsets, total)
}

#[cfg(test)]
mod tests {
    use super::{Request, place};
    use proptest::prelude::*;

    fn request(len: usize, first: usize, last: usize) -> Request {
        Request { len, first, last }
    }

    #[test]
    fn a_chain_needs_two_places() {
        // Value k is made at step k and read at step k + 1.
        let chain: Vec<Request> = (0..10).map(|step| request(640, step, step + 1)).collect();
        let (_, total) = place(&chain);
        assert_eq!(total, 2 * 640);
    }

    proptest! {
        #[test]
        fn no_two_living_values_overlap(
            requests in prop::collection::vec((1usize..500, 0usize..20, 0usize..6), 0..40)
        ) {
            let requests: Vec<Request> =
                requests.into_iter().map(|(len, first, more)| request(len, first, first + more)).collect();
            let (offsets, total) = place(&requests);
            for (i, (a, &at)) in requests.iter().zip(&offsets).enumerate() {
                prop_assert!(at % 64 == 0 && at + a.len <= total);
                for (b, &bt) in requests.iter().zip(&offsets).skip(i + 1) {
                    let apart = at + a.len <= bt || bt + b.len <= at;
                    prop_assert!(apart || a.last < b.first || b.last < a.first, "{a:?} {b:?}");
                }
            }
        }
    }
}
