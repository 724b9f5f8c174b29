//! NT types.

use std::num::NonZeroU32;

use snic_domain::limits::{DESCRIPTION_BYTES_MAX, NT_MEMORY_BYTES_PER_PACKET_MAX, NT_STATE_MAX};
use snic_domain::{Bandwidth, ByteSize, Cycles, MemoryTraffic, NtType, NtTypeId, Traffic};

use super::card::{area, area_to_wire};
use super::{FieldProblem, Problems, id, name, notes};
use crate::error::ApiError;
use crate::v1;

/// Converts a new NT type.
///
/// # Errors
/// [`ApiError`] with all invalid fields.
pub fn nt_type(nt_type_id: &str, nt: Option<&v1::NtType>) -> Result<NtType, ApiError> {
    let mut problems = Problems::default();
    let id: Option<NtTypeId> = problems.keep(id("nt_type_id", nt_type_id));
    let missing = || FieldProblem::required("nt_type");
    let nt = problems.keep(nt.ok_or_else(missing));
    let nt = nt.and_then(|nt| read(&mut problems, id?, nt));
    problems.finish()?;
    nt.ok_or_else(|| missing().into())
}

fn read(problems: &mut Problems, id: NtTypeId, nt: &v1::NtType) -> Option<NtType> {
    let traffic = problems.keep(traffic(nt.traffic));
    let required = |present: bool, field: &str| {
        if present { Ok(()) } else { Err(FieldProblem::required(field)) }
    };
    problems.keep(required(nt.bandwidth_max_bps != 0, "nt_type.bandwidth_max_bps"));
    problems.keep(required(nt.latency_cycles != 0, "nt_type.latency_cycles"));
    let area = nt.area.as_ref().map(area).filter(|area| *area != Default::default());
    let area = problems.keep(area.ok_or_else(|| FieldProblem::required("nt_type.area")));
    if nt.description.len() > DESCRIPTION_BYTES_MAX {
        let bytes = nt.description.len();
        let rule = format!("{bytes} bytes are too many (limit {DESCRIPTION_BYTES_MAX})");
        problems.keep(Err::<(), _>(FieldProblem::invalid("nt_type.description", rule)));
    }
    let labels = notes::labels(problems, "nt_type", &nt.labels);
    if nt.state_bytes > NT_STATE_MAX.get() {
        let rule = format!("{} bytes are too many (limit {NT_STATE_MAX})", nt.state_bytes);
        problems.keep(Err::<(), _>(FieldProblem::invalid("nt_type.state_bytes", rule)));
    }
    let packets = problems.keep(packets(nt.packets_per_second_max));
    let memory_traffic = memory_traffic(problems, nt);
    Some(NtType {
        id,
        shareable: nt.shareable,
        bandwidth_max: Bandwidth::from_bps(nt.bandwidth_max_bps),
        packets_per_second_max: packets?,
        latency: Cycles::new(nt.latency_cycles),
        area: area?,
        memory: ByteSize::from_bytes(nt.memory_bytes),
        memory_traffic,
        state: ByteSize::from_bytes(nt.state_bytes),
        traffic: traffic?,
        description: nt.description.clone(),
        labels: labels.unwrap_or_default(),
    })
}

/// The limit of packets; zero is none.
fn packets(most: u64) -> Result<Option<NonZeroU32>, FieldProblem> {
    let invalid = |_| {
        let rule = format!("{most} packets/s are too many (limit {})", u32::MAX);
        FieldProblem::invalid("nt_type.packets_per_second_max", rule)
    };
    u32::try_from(most).map(NonZeroU32::new).map_err(invalid)
}

/// The traffic with memory; a number beyond its limit is a problem, and counts as the limit.
fn memory_traffic(problems: &mut Problems, nt: &v1::NtType) -> MemoryTraffic {
    let mut within = |field: &str, bytes: u32, most: u32| {
        if bytes > most {
            let rule = format!("{bytes} bytes are too many (limit {most})");
            problems.keep(Err::<(), _>(FieldProblem::invalid(field, rule)));
        }
        bytes.min(most)
    };
    let (packet, byte) = (nt.memory_bytes_per_packet, nt.memory_bytes_per_packet_byte);
    let most = NT_MEMORY_BYTES_PER_PACKET_MAX;
    MemoryTraffic {
        bytes_per_packet: within("nt_type.memory_bytes_per_packet", packet, most),
        bytes_per_packet_byte: within("nt_type.memory_bytes_per_packet_byte", byte, 255) as u8,
    }
}

fn traffic(value: i32) -> Result<Traffic, FieldProblem> {
    match v1::nt_type::Traffic::try_from(value) {
        Ok(v1::nt_type::Traffic::HeaderOnly) => Ok(Traffic::HeaderOnly),
        Ok(v1::nt_type::Traffic::Payload) => Ok(Traffic::Payload),
        Ok(v1::nt_type::Traffic::Unspecified) => Err(FieldProblem::required("nt_type.traffic")),
        Err(_) => {
            let rule =
                format_args!("{value} is not a traffic kind (expected HEADER_ONLY or PAYLOAD)");
            Err(FieldProblem::invalid("nt_type.traffic", rule))
        }
    }
}

/// Converts an NT type, without the fields that the server adds: code, etag, time, whether it can be configured.
pub fn nt_type_to_wire(nt: &NtType) -> v1::NtType {
    let traffic = match nt.traffic {
        Traffic::HeaderOnly => v1::nt_type::Traffic::HeaderOnly,
        Traffic::Payload => v1::nt_type::Traffic::Payload,
    };
    v1::NtType {
        name: name::of_nt_type(&nt.id),
        owner: nt.id.owner().as_ref().map(name::of_tenant).unwrap_or_default(),
        shareable: nt.shareable,
        bandwidth_max_bps: nt.bandwidth_max.get(),
        packets_per_second_max: nt.packets_per_second_max.map_or(0, |most| most.get().into()),
        latency_cycles: nt.latency.get(),
        area: Some(area_to_wire(nt.area)),
        memory_bytes: nt.memory.get(),
        memory_bytes_per_packet: nt.memory_traffic.bytes_per_packet,
        memory_bytes_per_packet_byte: nt.memory_traffic.bytes_per_packet_byte.into(),
        state_bytes: nt.state.get(),
        traffic: traffic.into(),
        description: nt.description.clone(),
        code: nt.id.code().0,
        etag: String::new(),
        create_time: None,
        labels: nt.labels.as_map().clone(),
        configurable: false,
    }
}
