//! `snicctl fairness`.

use snic_api::v1::{Fairness, GetFairnessRequest, ListFairnessRequest};

use super::CliSession;
use crate::args::FairnessCommand;
use snic_client::Client;
use snic_client::Failure;
use snic_client::call;
use snic_client::lists::{PAGE_SIZE, pages};
use snic_client::names;
use snic_client::output::fairness as views;

pub async fn run(session: &mut CliSession, command: FairnessCommand) -> Result<(), Failure> {
    let client = session.client()?;
    let FairnessCommand::Get { tenant } = command;
    let Some(tenant) = tenant else {
        let all = all(&client).await?;
        return session.output.many(&all, views::tenants);
    };
    let request = GetFairnessRequest { name: names::tenant(&tenant)? };
    let reply = call!(client, fairness.get_fairness, request)?;
    session.output.many(&reply.fairness, views::tenant)
}

async fn all(client: &Client) -> Result<Vec<Fairness>, Failure> {
    pages(|page_token| async move {
        let request =
            ListFairnessRequest { page_size: PAGE_SIZE, page_token, ..Default::default() };
        let reply = call!(client, fairness.list_fairness, request)?;
        Ok((reply.fairness, reply.next_page_token))
    })
    .await
}
