//! Stream that a card should be sent to load a region: the bitstream between two streams of the daemon's own,
//! which set MASK, CTL0 and CTL1 to what every bitstream expects.
//!
//! ```text
//! control stream │ the bitstream's own streams │ control stream
//! ```
//!
//! A device keeps these registers from load to load. What reached the port by another way (JTAG, a
//! card's recovery, a load that was cut) may have left bits unmasked or the reset mask off; the first
//! stream undoes that for this load, the second for whoever comes next. Both end as the vendor's own
//! partial bitstreams do: CTL0 bit 10 set, bit 8 clear, CTL1 bit 17 clear. Nothing stays unmasked.

use crate::packet::{
    BUS_WIDTH, CTL0_ALLOWED, CTL0_RESET_MASK, CTL1_ALLOWED, NOOP, PAD, Register, SYNC, command,
    long_write, write,
};
use crate::{BitHeader, InvalidBitstream, parse};

/// Pad words before the bus width words (UG570's sample bitstream has 16).
const LEAD_PADS: usize = 16;
/// NOOPs that flush the packet buffer after DESYNC.
const TAIL_NOOPS: usize = 16;

/// Bytes that [`with_known_control`] adds at most: both streams, for the most dies that a part has.
pub const CONTROL_BYTES_MAX: u64 = 2_048;

/// The `.bit` file to send for the checked `.bit` file `bytes`: for each die on the way to the ones
/// that it reaches, the control registers are set before and after it.
///
/// # Errors
///
/// Where `bytes` is no valid bitstream.
pub fn with_known_control(bytes: &[u8]) -> Result<Vec<u8>, InvalidBitstream> {
    let file = parse(bytes)?;
    let (header, data) = BitHeader::parse(bytes)?;
    let last = file.writes.iter().map(|write| write.die).chain(file.dies.iter().copied()).max();
    let control: Vec<u8> = control_stream(0, last.unwrap_or_default())
        .iter()
        .flat_map(|word| word.to_be_bytes())
        .collect();
    let length = data.len() + 2 * control.len();
    let mut out = Vec::with_capacity(bytes.len() + 2 * control.len());
    // Far under 4 GiB: an upload has at most `limits::BITSTREAM_BYTES_MAX`.
    header.write(&mut out, u32::try_from(length).unwrap_or(u32::MAX))?;
    out.extend_from_slice(&control);
    out.extend_from_slice(data);
    out.extend_from_slice(&control);
    Ok(out)
}

/// The stream for `die`, with those of the dies behind it up to `last` inside.
fn control_stream(die: u8, last: u8) -> Vec<u32> {
    let mut words = vec![PAD; LEAD_PADS];
    words.extend(BUS_WIDTH);
    words.extend([PAD, PAD, SYNC, NOOP]);
    // RCRC first: whatever an earlier file began to check is over.
    words.extend([write(Register::CMD, 1), command::RCRC, NOOP, NOOP]);
    words.extend([write(Register::CMD, 1), command::NULL]);
    words.extend([write(Register::MASK, 1), CTL0_ALLOWED]);
    words.extend([write(Register::CTL0, 1), CTL0_RESET_MASK]);
    words.extend([write(Register::MASK, 1), CTL1_ALLOWED, write(Register::CTL1, 1), 0]);
    words.extend([write(Register::MASK, 1), 0]);
    if die < last {
        let next = control_stream(die + 1, last);
        // Some dozens of words.
        words.extend([write(Register::BOUT, 0), long_write(next.len() as u32)]);
        words.extend(next);
    }
    words.extend([write(Register::CMD, 1), command::DESYNC]);
    words.extend([NOOP; TAIL_NOOPS]);
    words
}

#[cfg(test)]
mod tests {
    use snic_domain::ByteSize;

    use super::*;
    use crate::test_image::TestBuild;
    use crate::{catalogue, identify};

    #[test]
    fn a_bitstream_stays_what_it_is_between_the_control_streams() {
        let catalogue = catalogue::builtin().expect("valid");
        let chain = [&catalogue.nt_types[0]];
        for die in 0..4 {
            let size = ByteSize::from_bytes(3_001);
            let card = &catalogue.cards[0];
            let build = TestBuild { card, chain: &chain, die, identity: None };
            let bytes = build.build(size).expect("possible");
            let sent = with_known_control(&bytes).expect("valid");
            let (before, after) = (parse(&bytes).expect("valid"), parse(&sent).expect("valid"));
            assert_eq!((before.idcode, before.header), (after.idcode, after.header));
            assert_eq!(before.writes, after.writes);
            assert_eq!(identify(&sent), identify(&bytes));
            // Every die on the way, each with a MASK, CTL0 and CTL1 of its own, twice.
            let count = |word: u32| sent.windows(4).filter(|w| *w == word.to_be_bytes()).count();
            assert_eq!(count(write(Register::CTL0, 1)), 2 * (usize::from(die) + 1));
            assert_eq!(after.dies.len(), usize::from(die) + 1);
            assert!((sent.len() - bytes.len()) as u64 <= CONTROL_BYTES_MAX);
        }
    }

    #[test]
    fn data_that_is_not_a_bitstream_is_not_sent() {
        assert!(with_known_control(b"xclbin2\0").is_err());
    }
}
