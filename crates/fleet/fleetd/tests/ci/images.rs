//! Images in the object store.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, SystemTime};

use snic_api::v1;
use snic_api::v1::card_service_client::CardServiceClient;
use snic_domain::Digest;
use tonic::Code;

use crate::cluster::{Cluster, eventually, in_time, runtime};
use crate::rig::Rig;

const CHAIN: [&str; 2] = ["firewall", "nat"];
const UUID: &str = "123e4567-e89b-42d3-a456-426614174002";

fn stored(folder: &Path) -> BTreeSet<String> {
    let Ok(files) = std::fs::read_dir(folder) else { return BTreeSet::new() };
    files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect()
}

/// Otherwise a tenant could fill the disk with what it is not allowed to register.
#[test]
fn the_image_of_a_refused_upload_is_not_stored() {
    let Some(cluster) = Cluster::start(1) else { return };
    runtime().block_on(in_time(async {
        let rig = Rig::start(cluster, 2).await;
        rig.leader().await;
        let root = rig.client(0, "operator/root").await;
        root.provide("h1", &CHAIN).await;
        let before = stored(&rig.images());
        assert_eq!(before.len(), 1);
        for (replica, request_id) in [(0, ""), (1, UUID)] {
            let root = rig.client(replica, "operator/root").await;
            let refused = root.upload("chain", &CHAIN, 32_768, request_id).await.unwrap_err();
            assert_eq!(refused.code(), Code::AlreadyExists, "{refused:?}");
        }
        assert_eq!(stored(&rig.images()), before);
        // Sent again with its number, what was carried out is not refused.
        let uuid = "123e4567-e89b-42d3-a456-426614174003";
        let made = root.upload("second", &CHAIN, 32_768, uuid).await.unwrap();
        assert_eq!(root.upload("second", &CHAIN, 32_768, uuid).await.unwrap(), made);
        assert_eq!(stored(&rig.images()).len(), 2);
    }));
}

#[test]
fn old_images_that_no_bitstream_names_are_removed_and_others_stay() {
    let Some(cluster) = Cluster::start(1) else { return };
    runtime().block_on(in_time(async {
        let kept = Duration::from_secs(6);
        let rig = Rig::with_images_kept(cluster, 2, kept).await;
        rig.leader().await;
        let root = rig.client(0, "operator/root").await;
        root.provide("h1", &CHAIN).await;
        let named = stored(&rig.images());
        assert_eq!(named.len(), 1);
        let (old, foreign) = (Digest::of(b"old").to_string(), "README".to_owned());
        for name in [&old, &foreign] {
            std::fs::write(rig.images().join(name), b"old").unwrap();
        }
        let long_ago = SystemTime::now() - Duration::from_secs(86_400);
        for name in stored(&rig.images()) {
            let file = std::fs::File::options().write(true).open(rig.images().join(name));
            file.unwrap().set_modified(long_ago).unwrap();
        }
        eventually(async || !stored(&rig.images()).contains(&old)).await;
        let left = stored(&rig.images());
        assert!(left.is_superset(&named) && left.contains(&foreign), "{left:?}");
    }));
}

#[test]
fn what_the_fleet_does_not_have_says_where_to_ask() {
    let Some(cluster) = Cluster::start(1) else { return };
    runtime().block_on(in_time(async {
        let rig = Rig::start(cluster, 1).await;
        let mut cards = CardServiceClient::new(rig.connect(0, "operator/root").await);
        let status = cards.list_cards(v1::ListCardsRequest::default()).await.unwrap_err();
        assert_eq!(status.code(), Code::Unimplemented);
        let text = status.message();
        assert!(text.contains("cards and regions") && text.contains("`snicd`"), "{text}");
    }));
}
