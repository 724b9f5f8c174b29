//! Congestion marks through tunnels (RFC 6040, section 4.2).

use crate::DropReason;
use crate::wire::Layout;

/// The two bits of ECN.
const NOT_ECT: u8 = 0b00;
const ECT_1: u8 = 0b01;
const ECT_0: u8 = 0b10;
const CE: u8 = 0b11;

/// The inner header's mark after the tunnel; `None` if the packet must be dropped, because it was
/// marked and its sender does not support ECN.
fn combine(inner: u8, outer: u8) -> Option<u8> {
    match (inner & 3, outer & 3) {
        (NOT_ECT, CE) => None,
        (NOT_ECT, _) => Some(NOT_ECT),
        (_, CE) => Some(CE),
        (ECT_0, ECT_1) => Some(ECT_1),
        (inner, _) => Some(inner),
    }
}

/// Copies congestion marks of the outer header to a packet that leaves a tunnel. `outer` is the
/// traffic class of the outer header.
///
/// # Errors
/// [`DropReason::CongestionLost`].
pub(crate) fn decapsulate(bytes: &mut [u8], inner: &Layout, outer: u8) -> Result<(), DropReason> {
    let class = inner.traffic_class(bytes);
    let mark = combine(class, outer).ok_or(DropReason::CongestionLost)?;
    if mark != class & 3 {
        inner.set_traffic_class(bytes, class & !3 | mark);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of RFC 6040, figure 4: rows are inner, columns outer, both Not-ECT, ECT(0), ECT(1),
    /// CE.
    #[test]
    fn marks_combine_as_in_the_table_of_the_rfc() {
        let all = [NOT_ECT, ECT_0, ECT_1, CE];
        let table = [
            [Some(NOT_ECT), Some(NOT_ECT), Some(NOT_ECT), None],
            [Some(ECT_0), Some(ECT_0), Some(ECT_1), Some(CE)],
            [Some(ECT_1), Some(ECT_1), Some(ECT_1), Some(CE)],
            [Some(CE), Some(CE), Some(CE), Some(CE)],
        ];
        for (inner, row) in all.iter().zip(table) {
            for (outer, expected) in all.iter().zip(row) {
                assert_eq!(combine(*inner, *outer), expected, "{inner} {outer}");
            }
        }
    }
}
