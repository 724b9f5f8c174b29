//! `snicctl nt`.

use snic_api::v1::nt_type::Traffic;
use snic_api::v1::{Area, CreateNtTypeRequest, DeleteNtTypeRequest, GetNtTypeRequest, NtType};

use super::{CliSession, list, request_id, watch};
use crate::args::{NewNt, NtCommand, TrafficArg};
use snic_client::Failure;
use snic_client::call;
use snic_client::names;
use snic_client::output::{changes, text, views};

pub async fn run(session: &mut CliSession, command: NtCommand) -> Result<(), Failure> {
    match command {
        NtCommand::Create(new) => {
            let nt_type_id = text::id(&names::nt_type(&new.name)?).to_owned();
            let nt_type = Some(resource(new));
            let request = CreateNtTypeRequest {
                nt_type_id,
                nt_type,
                request_id: request_id(),
                validate_only: false,
            };
            let nt = call!(session.client()?, nts.create_nt_type => nt_type, request)?;
            session.output.one(&nt, views::nt_type)
        }
        NtCommand::List(selected) => {
            list!(
                session,
                nts.list_nt_types(ListNtTypesRequest {}) => nt_types,
                selected.whole(),
                views::nt_types
            )
        }
        NtCommand::Watch => {
            watch!(session, nts.watch_nt_types(WatchNtTypesRequest), changes::nt_type_event)
        }
        NtCommand::Get { name } => {
            let request = GetNtTypeRequest { name: names::nt_type(&name)? };
            let nt = call!(session.client()?, nts.get_nt_type => nt_type, request)?;
            session.output.one(&nt, views::nt_type)
        }
        NtCommand::Delete { name, guard } => {
            let name = names::nt_type(&name)?;
            let request = DeleteNtTypeRequest {
                name: name.clone(),
                allow_missing: guard.allow_missing,
                etag: guard.guard.into_etag(),
                request_id: request_id(),
            };
            let _ = call!(session.client()?, nts.delete_nt_type, request)?;
            session.deleted(&name)
        }
    }
}

fn resource(new: NewNt) -> NtType {
    let traffic = match new.traffic {
        TrafficArg::Header => Traffic::HeaderOnly,
        TrafficArg::Payload => Traffic::Payload,
    };
    NtType {
        shareable: new.shareable,
        bandwidth_max_bps: new.bandwidth_max.get(),
        packets_per_second_max: new.packets_per_second_max,
        latency_cycles: new.latency_cycles,
        area: Some(Area { lut: new.lut, ramb36: new.ramb36, dsp: new.dsp }),
        memory_bytes: new.memory.get(),
        memory_bytes_per_packet: new.memory_bytes_per_packet,
        memory_bytes_per_packet_byte: new.memory_bytes_per_packet_byte,
        state_bytes: new.state.get(),
        traffic: traffic.into(),
        labels: new.notes.labels(),
        description: new.notes.description,
        ..NtType::default()
    }
}
