//! `snicctl fairness`.

use snic_api::v1::GetFairnessRequest;

use super::missing::MissingHosts;
use super::{CliSession, gathered_list};
use crate::args::FairnessCommand;
use snic_client::Failure;
use snic_client::call;
use snic_client::names;
use snic_client::output::fairness as views;

pub async fn run(session: &mut CliSession, command: FairnessCommand) -> Result<(), Failure> {
    let FairnessCommand::Get { tenant, selected } = command;
    let Some(tenant) = tenant else {
        return gathered_list!(
            session,
            fairness.list_fairness(ListFairnessRequest {}) => fairness,
            selected,
            views::tenants
        );
    };
    let request = GetFairnessRequest { name: names::tenant(&tenant)? };
    let reply = call!(session.client()?, fairness.get_fairness, request)?;
    let missing = MissingHosts::default();
    missing.add(reply.unreachable_hosts);
    missing.complain();
    session.output.many(&reply.fairness, views::tenant)
}
