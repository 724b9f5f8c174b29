//! Uploads at a fleet: whose signature counts for what, and what a fleet and a host say to the same upload.

use ring::signature::Ed25519KeyPair;
use snic_api::convert::nt_type::nt_type_to_wire;
use snic_api::error::reason_of;
use snic_api::replies::ItemOf as _;
use snic_api::v1::bitstream::{SignatureState, SignerRole};
use snic_api::v1::dag::State;
use snic_api::v1::{self, ErrorReason};
use snic_bitstream::TestBuild;
use snic_bitstream::catalogue::{self, Catalogue};
use snic_bitstream::manifest::BuiltManifest;
use snic_bitstream::signature::Statement;
use snic_domain::{
    Bandwidth, Bitstream, ByteSize, CardProfile, DagSpec, Digest, NtType, RegionId, RegionImage,
    RegionKind,
};
use snic_integration::keys::{key_pair, pem};
use snic_integration::{Home, TestClient};
use tonic::{Code, Status};

use super::cluster::{Cluster, eventually, in_time, runtime};
use super::rig::{Fleet, name};

/// An NT type like the provider's `nat`, under this id.
fn nt(id: &str) -> NtType {
    let catalogue = catalogue();
    let nat = catalogue.nt_type(&"nat".parse().unwrap()).unwrap();
    NtType { id: id.parse().unwrap(), ..nat.clone() }
}

fn catalogue() -> Catalogue {
    catalogue::builtin().unwrap()
}

fn card(catalogue: &Catalogue) -> &CardProfile {
    catalogue.card(&"sim-16".parse().unwrap()).unwrap()
}

async fn register(client: &TestClient, nt: &NtType) {
    let request = v1::CreateNtTypeRequest {
        nt_type_id: nt.id.to_string(),
        nt_type: Some(nt_type_to_wire(nt)),
        ..Default::default()
    };
    client.network_tasks().create_nt_type(request).await.unwrap();
}

/// A bitstream with this NT, as a build flow makes it for these regions; of another size, it has other bytes.
fn build(id: &str, nt: &NtType, (regions, size): (&[u8], ByteSize)) -> (Bitstream, Vec<u8>) {
    let catalogue = catalogue();
    let card = card(&catalogue);
    let regions: Vec<_> = regions.iter().copied().map(RegionId).collect();
    let nts = vec![nt.id.clone()];
    let manifest = BuiltManifest::of_test(&card.model, &nts, RegionKind::KnownNt, &regions);
    let identity = Some(manifest.identity);
    let bytes = TestBuild { card, chain: &[nt], die: 0, identity }.build(size).unwrap();
    let bitstream = Bitstream {
        id: id.parse().unwrap(),
        images: RegionImage { digest: Digest::of(&bytes), size, regions, signature: None }.into(),
        identity,
        nts,
        region_kind: RegionKind::KnownNt,
        card_model: card.model.clone(),
        shareable: false,
        signed_by: None,
        modules: Vec::new(),
        notes: Default::default(),
    };
    (bitstream, bytes)
}

fn sign(key: &Ed25519KeyPair, of: &Bitstream) -> Vec<u8> {
    key.sign(Statement::of(of).to_string().as_bytes()).as_ref().to_vec()
}

const SIZE: ByteSize = ByteSize::from_bytes(64 << 10);

/// The code, the reason and the text of a refusal.
fn refusal(result: Result<v1::Bitstream, Status>) -> (Code, Option<ErrorReason>, String) {
    let status = result.expect_err("it is refused");
    (status.code(), reason_of(&status), status.message().to_owned())
}

#[test]
fn a_fleet_takes_what_the_provider_or_the_owner_has_signed_and_nothing_else() {
    let Some(cluster) = Cluster::start(1) else { return };
    runtime().block_on(in_time(async {
        let mut fleet = Fleet::start(cluster, 1, 1).await;
        fleet.add_tenant("globex").await;
        let [provider, acme, globex] = [1, 2, 3].map(key_pair);
        let file = |who: &str, key: &Ed25519KeyPair| {
            let file = fleet.folder().join(format!("{who}-2026.pem"));
            std::fs::write(&file, pem(key)).unwrap();
            file
        };
        let signatures = format!(
            "provider = [{:?}]\n[signatures.tenants]\nacme = [{:?}]\nglobex = [{:?}]\n",
            file("provider", &provider),
            file("acme", &acme),
            file("globex", &globex),
        );
        fleet.require_signatures(0, &signatures);
        fleet.leader().await;
        let [root, of_acme, of_globex] =
            ["operator-root", "tenant-acme", "tenant-globex"].map(|who| fleet.client(0, who));
        for (client, id) in [(&of_acme, "acme.own"), (&of_globex, "globex.own")] {
            register(client, &nt(id)).await;
        }
        let (own, bytes) = build("acme.own", &nt("acme.own"), (&[], SIZE));
        let (theirs, their_bytes) = build("globex.own", &nt("globex.own"), (&[], SIZE));
        let (general, its_bytes) = build("general", &nt("nat"), (&[], SIZE));
        let unsigned = of_acme.upload(&own, bytes.clone()).await;
        let (code, _, text) = refusal(unsigned);
        assert!(code == Code::InvalidArgument && text.contains("not signed"), "{code:?} {text}");
        // Another tenant's key, the owner's over something else, and tenants' keys for what is the provider's.
        for (client, of, bytes, signature) in [
            (&of_acme, &own, &bytes, sign(&globex, &own)),
            (&of_acme, &own, &bytes, sign(&acme, &theirs)),
            (&of_globex, &theirs, &their_bytes, sign(&acme, &theirs)),
            (&root, &general, &its_bytes, sign(&acme, &general)),
        ] {
            let refused = client.upload_signed(of, bytes.clone(), signature).await;
            let (code, _, text) = refusal(refused);
            assert_eq!(code, Code::InvalidArgument, "{}: {text}", of.id);
            assert!(text.contains("none of the"), "{}: {text}", of.id);
        }
        let request = v1::ListBitstreamsRequest::default();
        let listed = root.bitstreams().list_bitstreams(request).await.unwrap();
        let listed = listed.into_inner().bitstreams;
        assert!(listed.iter().all(|of| of.signature_state() == SignatureState::Unsigned));

        let [of_owner, of_provider] = [SignerRole::Owner, SignerRole::Provider];
        for (client, of, bytes, key, by) in [
            (&of_acme, &own, &bytes, &acme, ("acme-2026", of_owner)),
            (&of_globex, &theirs, &their_bytes, &provider, ("provider-2026", of_provider)),
            (&root, &general, &its_bytes, &provider, ("provider-2026", of_provider)),
        ] {
            let taken = client.upload_signed(of, bytes.clone(), sign(key, of)).await.unwrap();
            assert_eq!(taken.signature_state(), SignatureState::Verified);
            assert_eq!((&*taken.signed_by, taken.signer_role()), by, "{}", of.id);
        }

        // Hosts load it, and say who signed it.
        let spec = DagSpec::chain(&["acme.own".parse().unwrap()], Bandwidth::from_gbps(1));
        eventually(async || of_acme.create_dag(&name("signed"), &spec).await.is_ok()).await;
        eventually(async || fleet.state(0, "signed").await == Ok(State::Ready)).await;
        let request = v1::GetBitstreamRequest { name: "bitstreams/acme.own".into() };
        let shown = fleet.host(0).await.bitstreams().get_bitstream(request).await.item().unwrap();
        assert_eq!((&*shown.signed_by, shown.signer_role()), ("acme-2026", of_owner));
    }));
}

/// Answers to uploads of an image for a region, one after the other.
async fn answers(root: &TestClient) -> Vec<(Code, Option<ErrorReason>, String)> {
    let nat = nt("nat");
    let of =
        |regions: &[u8], size: u64| build("images", &nat, (regions, ByteSize::from_bytes(size)));
    let first = of(&[0], SIZE.get());
    let (bitstream, bytes) = first.clone();
    root.upload(&bitstream, bytes).await.expect("it is the first");
    let mut answers = Vec::new();
    for (bitstream, bytes) in [
        first.clone(),               // the same again
        of(&[1], SIZE.get()),        // its bytes for another region
        of(&[0], 2 * SIZE.get()),    // another image for its region
        of(&[0, 1], 3 * SIZE.get()), // for its region and another
        of(&[], SIZE.get()),         // its bytes for every region
        of(&[], 2 * SIZE.get()),     // others for every region
    ] {
        answers.push(refusal(root.upload(&bitstream, bytes).await));
    }
    let (bitstream, bytes) = of(&[1], 2 * SIZE.get());
    let extended = root.upload(&bitstream, bytes).await.expect("region 1 has none");
    assert_eq!(extended.regions, [0, 1]);
    answers
}

#[test]
fn a_fleet_and_a_host_refuse_the_same_images_in_the_same_words() {
    let Some(cluster) = Cluster::start(1) else { return };
    runtime().block_on(in_time(async {
        let fleet = Fleet::start(cluster, 1, 0).await;
        let of_fleet = answers(&fleet.client(0, "operator-root")).await;
        let home = Home::new();
        let _daemon = home.start().await;
        let client = TestClient::connect(&home.socket(), "operator/test").await.unwrap();
        client.register_nt_types(&catalogue()).await;
        assert_eq!(of_fleet, answers(&client).await);
        let state = (Code::FailedPrecondition, Some(ErrorReason::InvalidState));
        let exists = (Code::AlreadyExists, Some(ErrorReason::ResourceExists));
        let expected = [state, state, state, state, exists, exists];
        let said: Vec<_> = of_fleet.iter().map(|(code, reason, _)| (*code, *reason)).collect();
        assert_eq!(said, expected, "{of_fleet:#?}");
        assert!(of_fleet[0].2.contains("has the same bytes"), "{of_fleet:#?}");
        assert!(of_fleet[2].2.contains("region 0 has an image already"), "{of_fleet:#?}");
    }));
}
