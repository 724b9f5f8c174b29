//! Bitstreams with an image for each region: a folder as a build flow writes it, uploaded and applied.

use std::path::Path;

use snic_bitstream::manifest::BuiltManifest;
use snic_domain::RegionId;

use super::*;

/// A folder with images of `nat` for regions 0 to 2, made by the command that says so.
fn built() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let line = format!(
        "bitstream build-test --model sim-16 --nts nat --size 100000 --each-region 0,1,2 {}",
        folder.path().display()
    );
    let run = run("http://127.0.0.1:9", &line);
    assert_eq!((run.code, run.stdout.lines().count()), (0, 3), "{}", run.stderr);
    folder
}

fn digest(folder: &Path, region: u8) -> String {
    let file = folder.join(format!("nat.region_{region}.bit"));
    Digest::of(&std::fs::read(file).expect("it was built")).to_string()
}

/// The bitstream as a server has it that got the images of some regions.
fn with_images(folder: &Path, regions: &[u8]) -> Bitstream {
    let image =
        |region: &u8| RegionImage { digest: digest(folder, *region), ..RegionImage::default() };
    let images = regions.iter().map(image).collect();
    Bitstream { name: "bitstreams/nat-x".into(), shareable: true, images, ..Bitstream::default() }
}

/// The regions and digests that were sent.
fn sent(fake: &Fake) -> Vec<(Vec<u32>, String)> {
    let parts: Vec<UploadBitstreamRequest> = fake.asked("UploadBitstream/part");
    let headers = parts.into_iter().filter_map(|part| match part.part {
        Some(Part::Header(header)) => Some(header),
        _ => None,
    });
    let of = |header: BitstreamHeader| {
        assert_eq!(header.bitstream_id, "nat-x");
        assert_eq!((header.nts.len(), header.card_model.as_str()), (1, "sim-16"));
        assert!(!header.identity.is_empty(), "its manifest says it");
        (header.regions, header.digest)
    };
    headers.map(of).collect()
}

#[test]
fn an_image_for_each_region_is_built_for_that_region_alone() {
    let folder = built();
    let catalogue = snic_bitstream::catalogue::builtin().expect("valid");
    let mut seen = std::collections::BTreeSet::new();
    for region in 0..3 {
        assert!(seen.insert(digest(folder.path(), region)), "a flow's images are never the same");
        let base = folder.path().join(format!("nat.region_{region}"));
        let manifest = std::fs::read_to_string(base.with_added_extension("toml")).expect("there");
        let manifest = BuiltManifest::parse(&manifest).expect("as a flow writes it");
        assert_eq!(manifest.regions, [RegionId(region)]);
        let bytes = std::fs::read(base.with_added_extension("bit")).expect("there");
        let parsed = snic_bitstream::parse(&bytes).expect("a bitstream");
        parsed.check_card(catalogue.card(&manifest.card_model).expect("there")).expect("its part");
    }
}

#[test]
fn what_the_server_has_of_a_folder_is_not_sent_again() {
    let fake = Fake::start();
    let folder = built();
    fake.answer("GetBitstream", &with_images(folder.path(), &[1]));
    fake.answer("UploadBitstream", &with_images(folder.path(), &[0, 1]));
    fake.answer("UploadBitstream", &with_images(folder.path(), &[0, 1, 2]));
    let line = format!("bitstream upload nat-x --folder {}", folder.path().display());
    let run = run(fake.endpoint(), &line);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(run.stderr.contains("nat.region_1.bit is there already"), "{}", run.stderr);
    let expected = [0, 2].map(|region| (vec![region.into()], digest(folder.path(), region)));
    assert_eq!(sent(&fake), expected);
}

#[test]
fn a_folder_without_images_or_manifests_is_refused_before_anything_is_sent() {
    let fake = Fake::start();
    let folder = built();
    let line = format!("bitstream upload nat-x --folder {}", folder.path().display());
    std::fs::remove_file(folder.path().join("nat.region_2.toml")).expect("it was built");
    let found = run(fake.endpoint(), &line);
    assert!(found.code == 2 && found.stderr.contains("nat.region_2.toml"), "{}", found.stderr);
    let empty = tempfile::tempdir().expect("a folder");
    let found = run(
        fake.endpoint(),
        &format!("bitstream upload nat-x --folder {}", empty.path().display()),
    );
    assert!(found.code == 2 && found.stderr.contains("has no file NAME.bit"), "{}", found.stderr);
    assert_eq!(sent(&fake), []);
}

/// Applies a document that names the folder, with further lines.
fn apply(fake: &Fake, folder: &Path, options: &str, lines: &str) -> crate::support::Run {
    let folder = folder.display();
    let document = format!("kind: bitstream\nname: nat-x\nfolder: {folder}\n{lines}");
    with_input(fake.endpoint(), &format!("apply {options} -f -"), &document)
}

#[test]
fn a_folder_that_is_applied_has_all_its_images_at_the_server() {
    let folder = built();
    let folder = folder.path();
    // Nothing is there.
    let fake = Fake::start();
    fake.refuse("GetBitstream", ApiError::not_found("bitstream", "bitstreams/nat-x"));
    for _ in 0..3 {
        fake.answer("UploadBitstream", &with_images(folder, &[0]));
    }
    let run = apply(&fake, folder, "", "shareable: true\n");
    assert_eq!((run.code, &*run.stdout), (0, "created bitstreams/nat-x\n"), "{}", run.stderr);
    assert_eq!(sent(&fake).len(), 3);
    // Some are.
    let fake = Fake::start();
    fake.answer("GetBitstream", &with_images(folder, &[0, 2]));
    fake.answer("UploadBitstream", &with_images(folder, &[0, 1, 2]));
    let run = apply(&fake, folder, "", "shareable: true\n");
    let changed = "changed bitstreams/nat-x (images)\n";
    assert_eq!((run.code, &*run.stdout), (0, changed), "{}", run.stderr);
    assert_eq!(sent(&fake), [(vec![1], digest(folder, 1))]);
    // A dry run has the server check what is missing, which keeps nothing of it.
    let fake = Fake::start();
    fake.answer("GetBitstream", &with_images(folder, &[0, 2]));
    fake.answer("UploadBitstream", &Bitstream::default());
    let run = apply(&fake, folder, "--dry-run", "");
    assert_eq!(run.stdout, "would change bitstreams/nat-x (images)\n", "{}", run.stderr);
    assert_eq!(sent(&fake), [(vec![1], digest(folder, 1))]);
    let parts: Vec<UploadBitstreamRequest> = fake.asked("UploadBitstream/part");
    let is_dry = |part: &UploadBitstreamRequest| match &part.part {
        Some(Part::Header(header)) => header.validate_only,
        _ => true,
    };
    assert!(parts.iter().all(is_dry), "{parts:?}");
    // All are.
    fake.answer("GetBitstream", &with_images(folder, &[0, 1, 2]));
    let run = apply(&fake, folder, "", "shareable: true\n");
    assert_eq!(run.stdout, "unchanged bitstreams/nat-x\n", "{}", run.stderr);
}

#[test]
fn a_folder_says_all_and_nothing_beside_it_does() {
    let folder = built();
    let folder = folder.path();
    let fake = Fake::start();
    let mut stray = with_images(folder, &[0]);
    stray.images.push(RegionImage { digest: "5e".into(), ..RegionImage::default() });
    for (line, present, says) in [
        ("file: nat.bit\n", with_images(folder, &[0]), "it has `folder:` too"),
        ("nts: [nat]\n", with_images(folder, &[0]), "each image's manifest"),
        (
            "shareable: false\n",
            with_images(folder, &[0]),
            "has shareable true, and it never changes",
        ),
        ("", stray, "snicctl bitstream delete nat-x --image 5e"),
    ] {
        fake.answer("GetBitstream", &present);
        let run = apply(&fake, folder, "", line);
        assert!(run.code == 2 && run.stderr.contains(says), "{line}: {}", run.stderr);
    }
    assert_eq!(sent(&fake), []);
}
