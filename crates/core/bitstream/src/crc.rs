//! The CRC-32 of IEEE 802.3, as Ethernet, gzip and a region's wrapper compute it.

/// The CRC of `words`, each taken most significant byte first.
pub(crate) fn crc32(words: &[u32]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    words.iter().for_each(|word| hasher.update(&word.to_be_bytes()));
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_values_of_the_standard_hold() {
        assert_eq!(crc32(&[]), 0);
        // Published: four zero bytes give 0x2144DF1C, four bytes 0xFF give 0xFFFFFFFF.
        assert_eq!(crc32(&[0]), 0x2144_DF1C);
        assert_eq!(crc32(&[0xFFFF_FFFF]), 0xFFFF_FFFF);
        // "12345678" is the published check text "123456789" without its last character.
        assert_eq!(crc32(&[0x3132_3334, 0x3536_3738]), 0x9AE0_DAAF);
    }
}
