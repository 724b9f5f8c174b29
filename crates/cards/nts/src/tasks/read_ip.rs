//! IP packets of frames, for NTs that decide which other frames pass.

use crate::config::NonIp;
use crate::wire::{Frame, Layout, parse};
use crate::{DropReason, Verdict};

/// The IP packet of a frame, for an NT that has to read what it lets through.
///
/// # Errors
/// The frame holds no IP packet; the verdict on it. What cannot be read is dropped, and so is what is neither ARP nor
/// named by `non_ip`.
pub(crate) fn read_ip(frame: &[u8], non_ip: &NonIp) -> Result<Layout, Verdict> {
    match parse(frame) {
        Ok(Frame::Ip(layout)) => Ok(layout),
        Ok(Frame::Arp) if non_ip.has_arp() => Err(Verdict::Forward),
        Ok(Frame::Arp) => Err(Verdict::Drop(DropReason::Rule)),
        Ok(Frame::Other(ether_type)) if non_ip.names(ether_type) => Err(Verdict::Forward),
        Ok(Frame::Other(_)) => Err(Verdict::Drop(DropReason::Unreadable)),
        Err(reason) => Err(Verdict::Drop(reason)),
    }
}
