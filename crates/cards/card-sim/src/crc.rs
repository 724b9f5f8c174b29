//! The CRC that a device computes over what goes through its configuration port.
//!
//! Every word that is written to a register goes in, least significant bit first, and then the five
//! bits of the register's address; CRC-32C. The command RCRC clears it, and a write to the CRC
//! register holds the file's value against it. A file that never writes that register is not
//! checked, as on a real device.

/// Castagnoli's polynomial, bits reversed.
const POLYNOMIAL: u32 = 0x82f6_3b78;
const SYNC: [u8; 4] = [0xaa, 0x99, 0x55, 0x66];
const REGISTER_CRC: u32 = 0;
const REGISTER_CMD: u32 = 4;
const COMMAND_RCRC: u32 = 7;
const COMMAND_DESYNC: u32 = 13;

const TABLE: [u32; 256] = table(8);
/// Tables of what each byte of a word comes to once the bytes after it have gone in too: a word takes one step and not four
/// that wait for each other. Tests check files of many megabytes.
const TABLES: [[u32; 256]; 4] = [table(32), table(24), table(16), TABLE];
/// The same for the address of a register.
const ADDRESSES: [u32; 32] = table(5);

/// Table of what the lowest bits of a CRC come to after so many.
const fn table<const LENGTH: usize>(bits: u32) -> [u32; LENGTH] {
    let mut table = [0; LENGTH];
    let mut lowest = 0;
    while lowest < LENGTH {
        table[lowest] = shift(lowest as u32, bits);
        lowest += 1;
    }
    table
}

const fn shift(mut crc: u32, bits: u32) -> u32 {
    let mut bit = 0;
    while bit < bits {
        crc = if crc & 1 == 1 { crc >> 1 ^ POLYNOMIAL } else { crc >> 1 };
        bit += 1;
    }
    crc
}

/// The CRC of bytes as the standard has it, for what is in memory.
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, byte| crc >> 8 ^ TABLE[(crc as u8 ^ byte) as usize])
}

fn add(crc: u32, register: u32, word: u32) -> u32 {
    let [first, second, third, fourth] = (crc ^ word).to_le_bytes().map(usize::from);
    let [of_first, of_second, of_third, of_fourth] = &TABLES;
    let crc = of_first[first] ^ of_second[second] ^ of_third[third] ^ of_fourth[fourth];
    let crc = crc ^ register;
    crc >> 5 ^ ADDRESSES[(crc & 0x1f) as usize]
}

/// Result of checking a file's CRC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Checked {
    /// It was not written, or was what the device computed.
    Fits,
    /// It was not.
    Differs {
        /// The file's value.
        written: u32,
        computed: u32,
    },
}

/// Holds the CRCs of a file, whose packets were checked, against its words.
pub(crate) fn check(bytes: &[u8]) -> Checked {
    let Some(sync) = bytes.windows(4).position(|window| window == SYNC) else {
        return Checked::Fits;
    };
    let words = bytes[sync + 4..].chunks_exact(4);
    let mut words = words.map(|word| u32::from_be_bytes([word[0], word[1], word[2], word[3]]));
    let (mut crc, mut register) = (0, 0);
    while let Some(header) = words.next() {
        let count = match (header >> 29, header >> 27 & 3) {
            (1, 2) => {
                register = header >> 13 & 0x1f;
                header & 0x7ff
            }
            (2, 2) => header & 0x07ff_ffff,
            _ => 0,
        };
        for word in words.by_ref().take(count as usize) {
            match (register, word) {
                (REGISTER_CRC, written) if written != crc => {
                    return Checked::Differs { written, computed: crc };
                }
                (REGISTER_CMD, COMMAND_DESYNC) => return Checked::Fits,
                (REGISTER_CRC, _) | (REGISTER_CMD, COMMAND_RCRC) => crc = 0,
                _ => crc = add(crc, register, word),
            }
        }
    }
    Checked::Fits
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn file(packets: &[u32]) -> Vec<u8> {
        let words = [0xffff_ffff, u32::from_be_bytes(SYNC)];
        words.iter().chain(packets).flat_map(|word| word.to_be_bytes()).collect()
    }

    fn bit_by_bit(crc: u32, register: u32, word: u32) -> u32 {
        let bits = (0..32).map(|bit| word >> bit & 1).chain((0..5).map(|bit| register >> bit & 1));
        bits.fold(crc, |crc, bit| shift(crc ^ bit, 1))
    }

    #[test]
    fn it_is_crc_32c() {
        // The check value that catalogues of CRCs print, and RFC 3720, B.4: 32 bytes of zeros and of ones.
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
    }

    #[test]
    fn a_wrong_crc_is_found_and_a_missing_one_is_not_asked_for() {
        let (mask, value) = (0x3000_c001, 0x1234_5678);
        let crc = add(0, 6, value);
        assert_eq!(check(&file(&[mask, value])), Checked::Fits);
        assert_eq!(check(&file(&[mask, value, 0x3000_0001, crc])), Checked::Fits);
        let differs = Checked::Differs { written: crc ^ 4, computed: crc };
        assert_eq!(check(&file(&[mask, value, 0x3000_0001, crc ^ 4])), differs);
        let after_desync = [mask, value, 0x3000_8001, COMMAND_DESYNC, 0x3000_0001, 7];
        assert_eq!(check(&file(&after_desync)), Checked::Fits);
        let reset = [mask, value, 0x3000_8001, COMMAND_RCRC, 0x3000_0001, 0];
        assert_eq!(check(&file(&reset)), Checked::Fits);
        assert_eq!(check(b"no packets at all"), Checked::Fits);
    }

    proptest! {
        #[test]
        fn by_table_and_by_bit_are_the_same(crc: u32, register in 0_u32..32, word: u32) {
            prop_assert_eq!(add(crc, register, word), bit_by_bit(crc, register, word));
        }
    }
}
