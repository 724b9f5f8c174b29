//! The CRC that a device keeps of what is written to its configuration registers.
//!
//! CRC-32C (Castagnoli), bit by bit from the least significant end: for each word its 32 bits, then
//! the 5 bits of the register's address. It begins with zero, is not inverted at the end, and RCRC
//! and each checked CRC word set it to zero again (UG570, "CRC Register", names the check; order and
//! polynomial are as two independent open descriptions of the format have them, Project U-Ray and
//! prjcombine, and as the vendor's own partial bitstreams confirm). What goes to the next die's
//! stream does not count, and neither do NOOPs. No crate computes it: the addresses are not whole bytes.

use crate::packet::{Packet, Register};

/// The polynomial, bits reversed.
const POLYNOMIAL: u32 = 0x82F6_3B78;
/// Bits of a register's address.
const ADDRESS_BITS: usize = 5;

/// The remainder of one byte shifted through.
const BYTES: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < table.len() {
        table[byte] = shifted(byte as u32, 8);
        byte += 1;
    }
    table
};

const fn shifted(mut crc: u32, bits: usize) -> u32 {
    let mut bit = 0;
    while bit < bits {
        crc = if crc & 1 == 1 { crc >> 1 ^ POLYNOMIAL } else { crc >> 1 };
        bit += 1;
    }
    crc
}

/// The CRC after one more word was written to a register.
pub(crate) fn update(crc: u32, register: Register, word: u32) -> u32 {
    let crc = word
        .to_le_bytes()
        .iter()
        .fold(crc, |crc, byte| crc >> 8 ^ BYTES[usize::from(crc.to_le_bytes()[0] ^ byte)]);
    shifted(crc ^ u32::from(register.address()), ADDRESS_BITS)
}

/// The CRC of the packets in `stream`, which begins after the packet that set it to zero. All of
/// them were decoded before; what is no packet ends the count.
pub(crate) fn of_packets(stream: &[u8]) -> u32 {
    let mut words =
        stream.chunks_exact(4).map(|word| u32::from_be_bytes([word[0], word[1], word[2], word[3]]));
    let (mut crc, mut register) = (0, Register::CRC);
    while let Some(packet) = words.next().and_then(Packet::decode) {
        let count = match packet {
            Packet::Noop | Packet::Read => 0,
            Packet::Write { register: of, count } => {
                register = of;
                count
            }
            Packet::Long { count } => count,
        };
        for word in words.by_ref().take(count) {
            if register != Register::BOUT {
                crc = update(crc, register, word);
            }
        }
    }
    crc
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::packet::{NOOP, command, long_write, write};

    /// As the open descriptions have it: one bit after the other, the polynomial not reversed, the
    /// register of the CRC mirrored.
    fn slow(crc: u32, register: u8, word: u32) -> u32 {
        let mut mirrored = crc.reverse_bits();
        let bits =
            (0..32).map(|i| word >> i & 1).chain((0..5).map(|i| u32::from(register >> i & 1)));
        for bit in bits {
            let carry = mirrored >> 31 ^ bit;
            mirrored = mirrored << 1 ^ if carry == 1 { 0x1EDC_6F41 } else { 0 };
        }
        mirrored.reverse_bits()
    }

    fn bytes(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_be_bytes()).collect()
    }

    /// Words of a partial bitstream's second stream between its two CRC words: COR0 and SHUTDOWN
    /// before the first, AGHIGH and the closing FAR between them. The words are fixed by the
    /// format, but for the part's IDCODE; the CRCs are those that Vivado 2022.1 wrote for an XCK26.
    #[test]
    fn it_is_what_vivado_writes() {
        let words = [
            write(Register::IDCODE, 1),
            0x04A4_9093,
            write(Register::COR0, 1),
            0x3800_3FE5,
            write(Register::CMD, 1),
            command::SHUTDOWN,
            NOOP,
        ];
        assert_eq!(of_packets(&bytes(&words)), 0x4FA0_2880);
        let words =
            [write(Register::CMD, 1), command::AGHIGH, NOOP, write(Register::FAR, 1), 0x07FC_0000];
        assert_eq!(of_packets(&bytes(&words)), 0x5568_F9F2);
    }

    #[test]
    fn words_for_another_die_are_not_part_of_the_crc() {
        let inner = [write(Register::BOUT, 0), long_write(2), 1, 2];
        let outer = [write(Register::FAR, 1), 7];
        let both = [&outer[..], &inner[..]].concat();
        assert_eq!(of_packets(&bytes(&both)), of_packets(&bytes(&outer)));
        assert_ne!(of_packets(&bytes(&outer)), 0);
    }

    proptest! {
        #[test]
        fn the_table_gives_what_single_bits_give(crc: u32, register in 0u8..32, word: u32) {
            prop_assert_eq!(update(crc, Register(register), word), slow(crc, register, word));
        }
    }
}
