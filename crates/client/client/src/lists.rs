//! Lists that are read page by page.

use std::future::Future;

use snic_api::fleet_v1::{GetRebalanceRequest, Rebalance};
use snic_api::v1::{Card, ListCardsRequest, ListRegionsRequest, Region};

use tonic::Code;

use crate::connection::Client;
use crate::failure::Failure;

/// Items per page: a reply stays far below the 4 MiB that a message may have.
pub const PAGE_SIZE: i32 = 200;

/// Calls a method of a service: `call!(client, dags.list_dags, request)`; `dags.get_dag => dag` takes
/// this field of the reply. A request that changes something must carry a request id.
///
/// A reply without the field is a [`Failure::Reply`], the server's fault, with an exit code of its own.
/// [`snic_api::replies::ItemOf`] gives a status instead, for callers without failures of this kind.
#[macro_export]
macro_rules! call {
    ($client:expr, $service:ident.$method:ident => $field:ident, $request:expr) => {
        $crate::call!($client, $service.$method, $request).and_then(|reply| {
            reply.$field.ok_or_else(|| $crate::Failure::without(stringify!($field)))
        })
    };
    ($client:expr, $service:ident.$method:ident, $request:expr) => {
        $client
            .call(
                $request,
                |client, request| async move { client.$service().$method(request).await },
            )
            .await
    };
}

/// Opens the stream of a method: `open!(client, dags.watch_dags, request)`; see [`Client::open`].
#[macro_export]
macro_rules! open {
    ($client:expr, $service:ident.$method:ident, $request:expr) => {
        $client
            .open(
                $request,
                |client, request| async move { client.$service().$method(request).await },
            )
            .await
    };
}

/// All pages of a list. `page` returns the items of a page and the token of the next one.
///
/// # Errors
/// [`Failure`] of a page, or [`Failure::Reply`] if the server repeats a page token.
pub async fn pages<T, F>(page: impl Fn(String) -> F) -> Result<Vec<T>, Failure>
where
    F: Future<Output = Result<(Vec<T>, String), Failure>>,
{
    let mut all = Vec::new();
    let mut token = String::new();
    loop {
        let (items, next) = page(token.clone()).await?;
        all.extend(items);
        if next.is_empty() {
            return Ok(all);
        }
        if next == token {
            return Err(Failure::Reply("the server returned the same page token twice".into()));
        }
        token = next;
    }
}

/// All cards.
///
/// # Errors
/// [`Failure`] of the request.
pub async fn cards(client: &Client) -> Result<Vec<Card>, Failure> {
    pages(async |page_token| {
        let request = ListCardsRequest { page_size: PAGE_SIZE, page_token, ..Default::default() };
        let reply = call!(client, cards.list_cards, request)?;
        Ok((reply.cards, reply.next_page_token))
    })
    .await
}

/// The regions of a card, or of all cards (`cards/-`), in their order.
///
/// # Errors
/// [`Failure`] of the request.
pub async fn regions(client: &Client, parent: &str) -> Result<Vec<Region>, Failure> {
    pages(async |page_token| {
        let parent = parent.to_owned();
        let request =
            ListRegionsRequest { parent, page_size: PAGE_SIZE, page_token, ..Default::default() };
        let reply = call!(client, cards.list_regions, request)?;
        Ok((reply.regions, reply.next_page_token))
    })
    .await
}

/// The rebalance of a fleet that is under way or was the last; `None` if there was none.
///
/// # Errors
/// [`Failure`] of the request.
pub async fn rebalance(client: &Client) -> Result<Option<Rebalance>, Failure> {
    match call!(client, fleet.get_rebalance => rebalance, GetRebalanceRequest {}) {
        Ok(rebalance) => Ok(Some(rebalance)),
        // Older replicas know of none.
        Err(Failure::Api(status))
            if matches!(status.code(), Code::NotFound | Code::Unimplemented) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[tokio::test]
    async fn pages_are_read_up_to_the_last() {
        let asked = RefCell::new(Vec::new());
        let page = |token: String| {
            let reply = match token.as_str() {
                "" => (vec![1, 2], "two".to_owned()),
                "two" => (vec![], "three".to_owned()),
                _ => (vec![3], String::new()),
            };
            asked.borrow_mut().push(token);
            async { Ok(reply) }
        };
        assert_eq!(pages(page).await.expect("all of them"), [1, 2, 3]);
        assert_eq!(*asked.borrow(), ["", "two", "three"]);
    }

    #[tokio::test]
    async fn a_server_that_goes_in_a_circle_is_an_error() {
        let asked = RefCell::new(0);
        let page = |_| {
            *asked.borrow_mut() += 1;
            assert!(*asked.borrow() < 10, "it is asked without end");
            async { Ok((vec![1], "same".to_owned())) }
        };
        let error = pages(page).await.expect_err("there is no end");
        assert!(error.to_string().contains("the same page token twice"), "{error}");
    }
}
