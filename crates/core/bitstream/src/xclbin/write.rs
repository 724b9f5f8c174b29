//! Containers for simulated cards: valid in every section, with a `.bit` for the right part.

use snic_domain::CardProfile;
use uuid::Uuid;

use super::{HEADER, MAGIC, SECTION_HEADER, SECTIONS, kind, partition};
use crate::InvalidHeader;
use crate::test_image::role_bit;

/// Byte address of the register map in test roles: any multiple of its size does.
const CONTROL_BASE: u64 = 0x0180_0000;

/// A role to be written. It has one kernel, the register map, and one bank of memory.
#[derive(Debug, Clone)]
pub struct TestRole<'a> {
    /// Identity of the role.
    pub uuid: Uuid,
    /// The interface of its platform; where it is zero, the role names none.
    pub interface: Uuid,
    /// The platform's name, printable and under 64 bytes.
    pub platform: &'a str,
    /// The kernel with the register map, as `kernel:instance`, under 64 bytes.
    pub control: &'a str,
    /// Bytes of its registers.
    pub registers_bytes: u64,
    /// Memory for buffers, in KiB.
    pub memory_kibibytes: u64,
}

impl TestRole<'_> {
    /// The container, for the part of `card`. The same arguments always give the same bytes.
    ///
    /// # Errors
    ///
    /// [`InvalidHeader`] if the name of the part cannot be written in a `.bit` header.
    pub fn build(&self, card: &CardProfile) -> Result<Vec<u8>, InvalidHeader> {
        Ok(self.container(1, &self.sections(role_bit(card)?)))
    }

    pub(super) fn sections(&self, bit: Vec<u8>) -> Vec<(u32, Vec<u8>)> {
        let mut sections = vec![
            (kind::BITSTREAM, bit),
            (kind::MEM_TOPOLOGY, self.memory_topology()),
            (kind::IP_LAYOUT, self.ip_layout()),
            (kind::CONNECTIVITY, table(4, &[words(&[0, 0, 0])])),
            (kind::EMBEDDED_METADATA, self.metadata().into_bytes()),
        ];
        if !self.interface.is_nil() {
            sections.push((kind::PARTITION_METADATA, partition::write(self.interface)));
        }
        sections
    }

    pub(super) fn container(&self, mode: u16, sections: &[(u32, Vec<u8>)]) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend((-1_i32).to_le_bytes()); // not signed in XRT's way
        out.resize(HEADER - 8, 0xFF);
        out.resize(SECTIONS + sections.len() * SECTION_HEADER, 0);
        for (index, (kind, content)) in sections.iter().enumerate() {
            out.resize(out.len().next_multiple_of(8), 0);
            let (offset, at) = (out.len() as u64, SECTIONS + index * SECTION_HEADER);
            put(&mut out, at, &kind.to_le_bytes());
            put(&mut out, at + 24, &offset.to_le_bytes());
            put(&mut out, at + 32, &(content.len() as u64).to_le_bytes());
            out.extend(content);
        }
        let length = out.len() as u64;
        put(&mut out, HEADER, &length.to_le_bytes());
        put(&mut out, HEADER + 26, &[2, 1]); // version 2.1
        put(&mut out, HEADER + 28, &mode.to_le_bytes());
        put(&mut out, HEADER + 32, &[0xA5; 16]); // of the platform's feature ROM
        put(&mut out, HEADER + 48, self.platform.as_bytes());
        put(&mut out, HEADER + 112, self.uuid.as_bytes());
        put(&mut out, HEADER + 144, &(sections.len() as u32).to_le_bytes());
        out
    }

    fn memory_topology(&self) -> Vec<u8> {
        let mut bank = vec![1, 1]; // DDR4, used
        bank.resize(8, 0);
        bank.extend(self.memory_kibibytes.to_le_bytes());
        bank.resize(24, 0);
        bank.extend(*b"DDR[0]\0\0\0\0\0\0\0\0\0\0");
        table(8, &[bank])
    }

    fn ip_layout(&self) -> Vec<u8> {
        let mut ip = words(&[1, 0]); // a kernel, AP_CTRL_HS
        ip.extend(CONTROL_BASE.to_le_bytes());
        ip.extend(self.control.as_bytes());
        ip.resize(80, 0);
        table(8, &[ip])
    }

    fn metadata(&self) -> String {
        let (kernel, instance) = self.control.split_once(':').unwrap_or((self.control, "0"));
        let (platform, range) = (self.platform, self.registers_bytes);
        format!(
            r#"<?xml version="1.0" encoding="UTF-8"?>
<project name="snic_role"><platform vendor="xilinx" boardid="snic" name="{platform}" featureRomTime="0"><version major="1" minor="0"/>
<device name="fpga0" fpgaDevice="virtexuplus" addrWidth="0"><core name="OCL_REGION_0" target="bitstream" type="clc_region" clockFreq="0MHz" numComputeUnits="1">
<kernelClocks><clock port="KERNEL_CLK" frequency="250.0MHz"/></kernelClocks>
<kernel name="{kernel}" language="ip_c" type="pl" hwControlProtocol="ap_ctrl_hs" interrupt="false" swReset="false"><module name="{kernel}"/>
<port name="S_AXI_CONTROL" mode="slave" range="{range:#x}" dataWidth="32" portType="addressable" base="0x0"/>
<port name="M_AXI" mode="master" range="0xFFFFFFFFFFFFFFFF" dataWidth="512" portType="addressable" base="0x0"/>
<arg name="buffer" addressQualifier="1" id="0" port="M_AXI" size="0x8" offset="0x10" hostOffset="0x0" hostSize="0x8" type="void*"/>
<instance name="{instance}"><addrRemap base="{CONTROL_BASE:#x}" range="{range:#x}" port="S_AXI_CONTROL"/></instance></kernel>
</core></device></platform></project>
"#
        )
    }
}

fn put(out: &mut [u8], at: usize, bytes: &[u8]) {
    out[at..at + bytes.len()].copy_from_slice(bytes);
}

pub(super) fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// A table: the number of its entries, a gap up to `first`, the entries.
pub(super) fn table(first: usize, entries: &[Vec<u8>]) -> Vec<u8> {
    let mut out = words(&[entries.len() as u32]);
    out.resize(first, 0);
    out.extend(entries.concat());
    out
}
