//! Whose bitstreams the daemon accepts, and which frames they may write.

use snic_api::v1;
use snic_api::v1::bitstream::SignatureState;
use snic_bitstream::catalogue;
use snic_bitstream::signature::statement;
use snic_domain::{Bitstream, Digest};
use snic_integration::keys::{key_pair, pem};
use snic_integration::{Home, TestClient};

/// A bitstream of one NT, for `sim-16`.
fn image() -> (Bitstream, Vec<u8>) {
    let catalogue = catalogue::builtin().expect("the built-in catalogue");
    let card = catalogue.card(&"sim-16".parse().expect("a label")).expect("it has it").clone();
    let chain = catalogue.chains_for(&card.model).next().expect("a chain").clone();
    catalogue.test_bitstream(&chain, &card).expect("a chain of the catalogue")
}

/// Where the address of the first frame is written.
fn frame_address(bytes: &[u8]) -> usize {
    let write_far = 0x3000_2001_u32.to_be_bytes();
    bytes.windows(4).position(|word| word == write_far).expect("a test image has it") + 4
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bitstream_needs_a_trusted_key_and_keeps_to_its_region() {
    let home = Home::new();
    let provider = key_pair(7);
    let key = home.path().join("release-2026.pem");
    std::fs::write(&key, pem(&provider)).expect("the folder takes files");
    let text = std::fs::read_to_string(home.settings()).expect("settings");
    let text = text.replace("allow_unsigned = true", &format!("provider = [{key:?}]"));
    std::fs::write(home.settings(), text).expect("settings");
    let _daemon = home.start().await;
    let client = TestClient::connect(&home.socket(), "operator/test").await.expect("it serves");
    let catalogue = catalogue::builtin().expect("the built-in catalogue");
    client.register_nt_types(&catalogue).await;
    let (bitstream, bytes) = image();
    let sign = |digest: Digest| provider.sign(statement(digest).as_bytes()).as_ref().to_vec();

    let refused = client.upload(&bitstream, bytes.clone()).await.expect_err("it is not signed");
    assert!(refused.message().contains("not signed"), "{refused:?}");
    let other = sign(Digest::of(b"something else"));
    let refused = client.upload_signed(&bitstream, bytes.clone(), other).await;
    let refused = refused.expect_err("it is the signature of something else");
    assert!(refused.message().contains("none of the 1 keys"), "{refused:?}");

    // It is signed, but writes another row: its maker's key does not make it harmless.
    let (mut reaching, mut elsewhere) = (bytes.clone(), bitstream.clone());
    let at = frame_address(&reaching);
    reaching[at..at + 4].copy_from_slice(&(5_u32 << 18).to_be_bytes());
    let digest = Digest::of(&reaching);
    elsewhere.images.first_mut().digest = digest;
    let refused = client.upload_signed(&elsewhere, reaching, sign(digest)).await;
    let refused = refused.expect_err("row 5 is not its region's");
    assert!(refused.message().contains("column 0 in row 5"), "{refused:?}");

    let taken =
        client.upload_signed(&bitstream, bytes, sign(bitstream.images.first().digest)).await;
    let taken = taken.expect("it is signed");
    assert_eq!(taken.signature_state(), SignatureState::Verified);
    let request = v1::ListBitstreamsRequest::default();
    let listed = client.bitstreams().list_bitstreams(request).await.expect("a list").into_inner();
    let shown: Vec<_> = listed.bitstreams.iter().map(|shown| &*shown.signed_by).collect();
    assert_eq!(shown, ["release-2026"]);
}
