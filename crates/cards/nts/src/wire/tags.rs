//! VLAN tags, of all kinds that cards and hosts know.

use super::{ETHERNET_TYPE, read_u16};

/// Whether an EtherType announces a VLAN tag: IEEE 802.1Q and 802.1ad, and what cards had before the latter.
pub const fn is_tag(ether_type: u16) -> bool {
    matches!(ether_type, 0x8100 | 0x88A8 | 0x9100 | 0x9200 | 0x9300)
}

/// The VLAN numbers in all tags of a frame, from the outermost on; 0 is the number of a tag for its priority alone.
pub const fn vlans(frame: &[u8]) -> Tags<'_> {
    Tags { frame, at: ETHERNET_TYPE }
}

/// The tags of a frame.
#[derive(Debug, Clone)]
pub struct Tags<'a> {
    frame: &'a [u8],
    at: usize,
}

impl Tags<'_> {
    /// The EtherType behind the tags that were taken; `None` where the frame ends before it.
    pub fn ether_type(&self) -> Option<u16> {
        self.frame.get(self.at..self.at + 2).map(|bytes| read_u16(bytes, 0))
    }
}

impl Iterator for Tags<'_> {
    type Item = u16;

    fn next(&mut self) -> Option<u16> {
        let announces_tag = self.ether_type().is_some_and(is_tag);
        let number = self.frame.get(self.at + 2..self.at + 4).filter(|_| announces_tag)?;
        self.at += 4;
        Some(read_u16(number, 0) & 0x0FFF)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_tags_of_a_frame_are_found() {
        let frame = |behind: &[u8]| [&[2; 12][..], behind].concat();
        let tagged = frame(&[0x88, 0xA8, 0xEF, 0xFE, 0x81, 0, 0, 0, 0x91, 0, 0, 6, 8, 0]);
        let mut tags = vlans(&tagged);
        assert_eq!(tags.by_ref().collect::<Vec<_>>(), [0xFFE, 0, 6]);
        assert_eq!(tags.ether_type(), Some(0x0800));
        let plain = frame(&[8, 0]);
        assert_eq!((vlans(&plain).next(), vlans(&plain).ether_type()), (None, Some(0x0800)));
        for length in 0..tagged.len() {
            let mut tags = vlans(&tagged[..length]);
            assert!(tags.by_ref().count() <= 3 && tags.ether_type() != Some(0x0800), "{length}");
        }
    }
}
