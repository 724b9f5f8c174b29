//! Signers whose bitstreams the daemon accepts, which frames they may write, and whose packets pass them.

use std::path::PathBuf;

use ring::signature::Ed25519KeyPair;
use snic_api::replies::ItemOf as _;
use snic_api::v1;
use snic_api::v1::bitstream::{SignatureState, SignerRole};
use snic_bitstream::catalogue;
use snic_bitstream::signature::statement;
use snic_domain::{Bandwidth, Bitstream, DagName, DagSpec, Digest};
use snic_integration::keys::{key_pair, pem};
use snic_integration::{Home, TestClient};
use tonic::Status;

/// An image of one NT of the provider's catalogue for `sim-16`, under an id.
fn image_of(nt: &str, id: &str) -> (Bitstream, Vec<u8>) {
    let catalogue = catalogue::builtin().expect("the built-in catalogue");
    let card = catalogue.card(&"sim-16".parse().expect("a label")).expect("it has it").clone();
    let chain = catalogue.chains_for(&card.model).find(|chain| chain.id.as_str() == nt);
    let (image, bytes) = catalogue
        .test_bitstream(&chain.expect("a chain of it").clone(), &card)
        .expect("a chain of the catalogue");
    (Bitstream { id: id.parse().expect("an id"), ..image }, bytes)
}

fn sign(key: &Ed25519KeyPair, image: &Bitstream) -> Vec<u8> {
    key.sign(statement(image.images.first().digest).as_bytes()).as_ref().to_vec()
}

fn dag_name(text: &str) -> DagName {
    let (tenant, dag) = text.split_once('/').expect("tenant/dag");
    DagName { tenant: tenant.parse().expect("a label"), dag: dag.parse().expect("a label") }
}

/// Creates a DAG of one NT and waits until it is ready. Gives the image that its packets pass, as an operator sees it.
async fn image_of_dag(
    home: &Home,
    name: &str,
    (nt, trusted): (&str, &[&str]),
) -> Result<String, Status> {
    let name = dag_name(name);
    let client = |identity: String| async move {
        TestClient::connect(&home.socket(), &identity).await.expect("it serves")
    };
    let tenant = client(format!("tenant/{}", name.tenant)).await;
    let spec = DagSpec::chain(&[nt.parse().expect("a label")], Bandwidth::from_gbps(1));
    let dag = v1::Dag {
        nodes: snic_api::convert::dag::nodes_to_wire(&spec, snic_api::convert::dag::whole),
        bandwidth_bps: spec.bandwidth.get(),
        trusted_tenants: trusted.iter().map(|tenant| format!("tenants/{tenant}")).collect(),
        ..Default::default()
    };
    let request = v1::CreateDagRequest {
        parent: format!("tenants/{}", name.tenant),
        dag_id: name.dag.to_string(),
        dag: Some(dag),
        ..Default::default()
    };
    let operation = tenant.dags().create_dag(request).await.item()?;
    tenant.wait(&operation).await.expect("it becomes ready");
    let operator = client("operator/test".to_owned()).await;
    let request = v1::GetDagRequest { name: name.to_string() };
    let dag = operator.dags().get_dag(request).await.item().expect("it was created");
    Ok(dag.mapping.expect("it is ready").stages[0].branches[0].instances[0].bitstream.clone())
}

/// Mallory signs an image of the provider's `aes` itself, shares it and loads it. Acme's packets do not pass it, though it
/// is loaded and free: acme has said nothing of mallory, and the provider nothing of the image.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenants_own_signature_makes_nobody_else_trust_its_image() {
    let home = Home::new();
    let [provider, mallory] = [7, 8].map(key_pair);
    // Files of one name: what counts is whose ring a key is in.
    let file = |folder: &str, key: &Ed25519KeyPair| -> PathBuf {
        let folder = home.path().join(folder);
        std::fs::create_dir(&folder).expect("the folder takes folders");
        std::fs::write(folder.join("release.pem"), pem(key)).expect("the folder takes files");
        folder.join("release.pem")
    };
    let signatures = format!(
        "provider = [{:?}]\n[signatures.tenants]\nmallory = [{:?}]\n",
        file("provider", &provider),
        file("mallory", &mallory)
    );
    let text = std::fs::read_to_string(home.settings()).expect("settings");
    let text = text.replace("allow_unsigned = true\n", &signatures);
    std::fs::write(home.settings(), text).expect("settings");
    let _daemon = home.start().await;
    let operator = TestClient::connect(&home.socket(), "operator/test").await.expect("it serves");
    operator.register_nt_types(&catalogue::builtin().expect("the built-in catalogue")).await;
    for tenant in ["mallory", "acme"] {
        operator.create_tenant(tenant).await.expect("it is new");
    }
    let of_mallory =
        TestClient::connect(&home.socket(), "tenant/mallory").await.expect("it serves");
    let (own, bytes) = image_of("aes", "mallory.aes");
    let taken = of_mallory.upload_signed(&own, bytes, sign(&mallory, &own)).await;
    let taken = taken.expect("its own key is good for its own image");
    assert_eq!((&*taken.signed_by, taken.signer_role()), ("release", SignerRole::Owner));
    let place = |name: &'static str, nt: &'static str, trusted: &'static [&'static str]| {
        image_of_dag(&home, name, (nt, trusted))
    };
    assert_eq!(place("mallory/own", "aes", &[]).await.expect("its own"), "bitstreams/mallory.aes");

    let refused = place("acme/web", "aes", &[]).await.expect_err("there is only mallory's image");
    assert!(!refused.message().contains("mallory"), "{refused}");
    let named = place("acme/trusting", "aes", &["mallory"]).await.expect("acme says so itself");
    assert_eq!(named, "bitstreams/mallory.aes");
    // The provider's is loaded for acme beside mallory's, which has bandwidth left.
    let (general, bytes) = image_of("aes", "aes");
    operator.upload_signed(&general, bytes, sign(&provider, &general)).await.expect("it is signed");
    assert_eq!(place("acme/web", "aes", &[]).await.expect("the provider's"), "bitstreams/aes");

    // What the provider signed for mallory serves all.
    let (approved, bytes) = image_of("nat", "mallory.nat");
    let taken = of_mallory.upload_signed(&approved, bytes, sign(&provider, &approved)).await;
    let taken = taken.expect("the provider's key is good for every image");
    assert_eq!((&*taken.signed_by, taken.signer_role()), ("release", SignerRole::Provider));
    assert_eq!(place("mallory/nat", "nat", &[]).await.expect("its own"), "bitstreams/mallory.nat");
    assert_eq!(place("acme/nat", "nat", &[]).await.expect("loaded"), "bitstreams/mallory.nat");
}

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
