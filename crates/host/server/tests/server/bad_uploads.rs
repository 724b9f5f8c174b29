//! Uploads that contradict their header: nothing of them is stored.

use std::time::Duration;

use rstest::rstest;
use snic_api::error::reason_of;
use snic_api::v1::{self, ErrorReason, UploadBitstreamRequest};
use snic_front::settings::Limits;
use tokio_stream::StreamExt as _;
use tonic::Code;
use tonic_types::StatusExt as _;

use crate::rig::{Client, Rig, chunk, header, image, in_time, upload};

type Messages = Vec<UploadBitstreamRequest>;

/// A valid upload with a changed header.
fn with_header(change: impl FnOnce(&mut v1::BitstreamHeader)) -> Messages {
    let (mut declared, bytes) = image("x", &["firewall", "nat"]);
    change(&mut declared);
    upload(declared, &bytes, 4_096)
}

/// A valid upload with changed bytes, and their digest.
fn with_bytes(change: impl FnOnce(&mut Vec<u8>)) -> Messages {
    let (mut declared, mut bytes) = image("x", &["firewall", "nat"]);
    change(&mut bytes);
    declared.digest = snic_domain::Digest::of(&bytes).to_string();
    declared.size_bytes = bytes.len() as u64;
    upload(declared, &bytes, 4_096)
}

fn good() -> Messages {
    with_header(|_| {})
}

fn nts(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| format!("ntTypes/{name}")).collect()
}

#[rstest]
#[case::wrong_digest(
    with_header(|h| h.digest = "0".repeat(64)), ErrorReason::DigestMismatch, "header.digest"
)]
#[case::no_digest(
    with_header(|h| h.digest = "xyz".into()), ErrorReason::InvalidField, "header.digest"
)]
#[case::more_bytes_than_declared(
    with_header(|h| h.size_bytes -= 1), ErrorReason::SizeMismatch, "header.size_bytes"
)]
#[case::fewer_bytes_than_declared(
    with_header(|h| h.size_bytes += 1), ErrorReason::SizeMismatch, "header.size_bytes"
)]
#[case::no_bytes(
    with_header(|h| h.size_bytes = 0), ErrorReason::FieldRequired, "header.size_bytes"
)]
#[case::too_many_bytes(
    with_header(|h| h.size_bytes = 16_777_217), ErrorReason::InvalidField, "header.size_bytes"
)]
#[case::other_nts(
    with_header(|h| h.nts = nts(&["firewall", "aes"])), ErrorReason::ManifestMismatch, "header.nts[1]"
)]
#[case::another_order(
    with_header(|h| h.nts.reverse()), ErrorReason::ManifestMismatch, "header.nts[0]"
)]
#[case::fewer_nts(
    with_header(|h| h.nts.truncate(1)), ErrorReason::ManifestMismatch, "header.nts"
)]
#[case::unknown_nts(
    with_header(|h| h.nts = nts(&["firewall", "foo"])), ErrorReason::UnknownNtType, "header.nts[1]"
)]
#[case::no_nts(with_header(|h| h.nts.clear()), ErrorReason::FieldRequired, "header.nts")]
#[case::too_many_nts(
    with_header(|h| h.nts = nts(&["nat"; 9])), ErrorReason::InvalidField, "header.nts"
)]
#[case::no_nt_name(
    with_header(|h| h.nts[0] = "nat".into()), ErrorReason::InvalidName, "header.nts[0]"
)]
#[case::another_card(
    with_header(|h| h.card_model = "u280".into()), ErrorReason::ManifestMismatch, "header.card_model"
)]
#[case::no_card(
    with_header(|h| h.card_model = "Nope!".into()), ErrorReason::InvalidField, "header.card_model"
)]
#[case::no_kind(
    with_header(|h| h.region_kind = 0), ErrorReason::FieldRequired, "header.region_kind"
)]
#[case::no_id(
    with_header(|h| h.bitstream_id = "a.b.c".into()), ErrorReason::InvalidField, "header.bitstream_id"
)]
#[case::a_tenant_that_is_none(
    with_header(|h| h.bitstream_id = "nobody.x".into()),
    ErrorReason::InvalidField,
    "header.bitstream_id"
)]
#[case::no_request_id(
    with_header(|h| h.request_id = "1".into()), ErrorReason::InvalidField, "header.request_id"
)]
#[case::noise(with_bytes(|b| b.fill(7)), ErrorReason::ManifestMismatch, "chunk")]
#[case::cut_bytes(with_bytes(|b| b.truncate(9_000)), ErrorReason::ManifestMismatch, "chunk")]
#[tokio::test]
async fn an_upload_that_does_not_match_its_header_is_refused(
    #[case] messages: Messages,
    #[case] reason: ErrorReason,
    #[case] field: &str,
) {
    let rig = Rig::start().await;
    let mut operator = rig.furnished().await;
    let blobs = rig.store.list_blobs().expect("readable");
    let status = operator.send(messages).await.expect_err("refused");
    assert_eq!(reason_of(&status), Some(reason), "{status:?}");
    let bad = status.get_details_bad_request().expect("a BadRequest");
    assert_eq!(bad.field_violations[0].field, field, "{}", status.message());
    nothing_left(&rig, &blobs).await;
    rig.stop().await;
}

async fn nothing_left(rig: &Rig, blobs: &[snic_domain::Digest]) {
    let mut operator = rig.client("operator/root").await;
    let request = v1::GetBitstreamRequest { name: "bitstreams/x".into() };
    let status = operator.bitstreams.get_bitstream(request).await.expect_err("not there");
    assert_eq!(status.code(), Code::NotFound);
    assert_eq!(rig.store.list_blobs().expect("readable"), blobs);
}

#[rstest]
#[case::nothing(vec![], "before the header")]
#[case::a_chunk_first(good()[1..].to_vec(), "send the header first")]
#[case::two_headers([&good()[..1], &good()[..]].concat(), "second header")]
#[case::an_empty_chunk([&good()[..1], &[chunk(&[])]].concat(), "empty")]
#[case::neither(vec![UploadBitstreamRequest { part: None }], "neither")]
#[tokio::test]
async fn a_stream_that_breaks_its_protocol_is_refused(
    #[case] messages: Messages,
    #[case] says: &str,
) {
    let rig = Rig::start().await;
    let mut operator = rig.furnished().await;
    let blobs = rig.store.list_blobs().expect("readable");
    let status = operator.send(messages).await.expect_err("refused");
    assert_eq!(reason_of(&status), Some(ErrorReason::InvalidStream), "{status:?}");
    assert!(status.message().contains(says), "{}", status.message());
    nothing_left(&rig, &blobs).await;
    rig.stop().await;
}

#[tokio::test]
async fn a_chunk_over_the_limit_is_refused() {
    let rig = Rig::start().await;
    let mut operator = rig.furnished().await;
    for bytes in [(1 << 20) + 1, 3 << 20] {
        let (declared, _) = image("x", &["nat"]);
        let messages = vec![header(declared), chunk(&vec![0; bytes])];
        let status = operator.send(messages).await.expect_err("refused");
        assert_eq!(reason_of(&status), Some(ErrorReason::LimitExceeded), "{status:?}");
        assert_eq!(status.code(), Code::ResourceExhausted);
    }
    rig.stop().await;
}

/// A stream that is cut in the middle frees its place and leaves nothing; one that stalls ends at
/// its deadline.
#[tokio::test]
async fn a_cut_stream_leaves_nothing() {
    let limits = Limits { uploads_max: 1, ..Limits::default() };
    let rig = Rig::with(limits).await;
    let mut operator = rig.furnished().await;
    let blobs = rig.store.list_blobs().expect("readable");
    // An upload of which the header and a chunk are sent.
    let begin = |mut client: Client| {
        let sent = tokio_stream::iter(good().into_iter().take(2)).chain(tokio_stream::pending());
        tokio::spawn(async move { client.bitstreams.upload_bitstream(sent).await })
    };
    let mut cut = begin(operator.clone());
    // While it has not ended there is no room for another. Where the other one came first, it begins again.
    let status = in_time(async {
        loop {
            match operator.send(good()[1..].to_vec()).await {
                Err(status) if reason_of(&status) == Some(ErrorReason::Overloaded) => {
                    return status;
                }
                other => assert!(other.is_err(), "a chunk without a header"),
            }
            if cut.is_finished() {
                cut = begin(operator.clone());
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    })
    .await;
    assert!(status.get_details_retry_info().is_some());
    cut.abort();
    assert!(cut.await.expect_err("aborted").is_cancelled());
    // As soon as the server has seen it there is room again.
    let bitstream = in_time(async {
        loop {
            match operator.send(good()).await {
                Ok(bitstream) => return bitstream,
                Err(status) => assert_eq!(reason_of(&status), Some(ErrorReason::Overloaded)),
            }
        }
    })
    .await;
    assert_eq!(bitstream.name, "bitstreams/x");
    assert_eq!(rig.store.list_blobs().expect("readable").len(), blobs.len() + 1);
    rig.stop().await;
}

#[tokio::test]
async fn a_repeated_upload_answers_the_same() {
    let rig = Rig::start().await;
    let mut operator = rig.furnished().await;
    let id = "123e4567-e89b-42d3-a456-426614174000";
    let messages = || with_header(|header| header.request_id = id.into());
    let first = operator.send(messages()).await.expect("stored");
    assert_eq!(operator.send(messages()).await.expect("repeated"), first);
    let status = operator.send(good()).await.expect_err("there already");
    assert_eq!(reason_of(&status), Some(ErrorReason::ResourceExists));
    let stale = v1::DeleteBitstreamRequest {
        name: first.name.clone(),
        etag: "old".into(),
        ..Default::default()
    };
    let status = operator.bitstreams.delete_bitstream(stale).await.expect_err("guarded");
    assert_eq!(reason_of(&status), Some(ErrorReason::EtagMismatch));
    let delete =
        v1::DeleteBitstreamRequest { name: first.name, etag: first.etag, ..Default::default() };
    operator.bitstreams.delete_bitstream(delete).await.expect("deleted");
    rig.stop().await;
}
