//! Gives an image a CRC, computed here bit by bit from its definition.

const POLYNOMIAL: u32 = 0x82f6_3b78;
const PAD: u32 = u32::MAX;
const SYNC: u32 = 0xaa99_5566;
const WRITE_CRC: u32 = 0x3000_0001;
const WRITE_CMD: u32 = 0x3000_8001;
const RCRC: u32 = 7;
const DESYNC: u32 = 13;

fn add(crc: u32, register: u32, word: u32) -> u32 {
    let value = u64::from(register) << 32 | u64::from(word);
    (0..37).fold(crc, |crc, bit| {
        let feedback = (value >> bit) as u32 & 1 ^ crc & 1 == 1;
        if feedback { crc >> 1 ^ POLYNOMIAL } else { crc >> 1 }
    })
}

/// Puts a write to the CRC register before DESYNC, in place of two pads at the beginning.
pub fn seal(image: Vec<u8>) -> Vec<u8> {
    let at = image.windows(4).position(|word| word == SYNC.to_be_bytes()).expect("a sync word");
    let first_pad = at % 4
        + image[at % 4..at].chunks(4).position(|w| w == PAD.to_be_bytes()).expect("pads") * 4;
    let word = |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().expect("four bytes"));
    let words: Vec<u32> = image[at + 4..].chunks_exact(4).map(word).collect();
    let (mut crc, mut register, mut i) = (0, 0, 0);
    let end = loop {
        let header = words[i];
        i += 1;
        let count = match header >> 29 {
            1 if header >> 27 & 3 == 2 => {
                register = header >> 13 & 0x1f;
                header & 0x7ff
            }
            2 => header & 0x07ff_ffff,
            _ => 0,
        };
        if header == WRITE_CRC {
            return image;
        }
        if (header, words[i]) == (WRITE_CMD, DESYNC) {
            break i - 1;
        }
        for &word in &words[i..i + count as usize] {
            crc = if (register, word) == (4, RCRC) { 0 } else { add(crc, register, word) };
        }
        i += count as usize;
    };
    let insert = at + 4 + end * 4;
    let mut sealed = image[..first_pad].to_vec();
    sealed.extend_from_slice(&image[first_pad + 8..insert]);
    sealed.extend([WRITE_CRC, crc].iter().flat_map(|word| word.to_be_bytes()));
    sealed.extend_from_slice(&image[insert..]);
    sealed
}
