//! Calls that end without asking the daemon.

use assert_cmd::Command;

fn hook(words: &[&str]) -> assert_cmd::assert::Assert {
    let mut command = Command::new(env!("CARGO_BIN_EXE_snic-hook"));
    command.args(["--config", "/nonexistent/hook.toml"]).args(words).assert()
}

#[test]
fn without_a_call_it_says_how_it_is_called() {
    for words in [&[][..], &["web1"], &["web1", "prepare"], &["heartbeat", "--twice"]] {
        let said = hook(words).code(2).get_output().stderr.clone();
        assert!(String::from_utf8_lossy(&said).contains("usage: snic-hook"), "{words:?}");
    }
}

#[test]
fn domains_without_our_metadata_start_whatever_the_settings() {
    for (operation, sub) in [("start", "begin"), ("migrate", "begin"), ("nonsense", "now")] {
        let ended = hook(&["web1", operation, sub, "-"]).success();
        assert!(ended.get_output().stdout.is_empty() && ended.get_output().stderr.is_empty());
    }
}
