//! The command line as a whole.

use clap::CommandFactory as _;
use prost_reflect::DescriptorPool;

use super::*;

#[test]
fn the_command_line_is_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn every_command_and_option_says_what_it_is() {
    fn check(command: &clap::Command) {
        assert!(command.get_about().is_some(), "{}", command.get_name());
        for argument in command.get_arguments() {
            assert!(argument.get_help().is_some(), "{} {argument}", command.get_name());
        }
        command.get_subcommands().for_each(check);
    }
    check(&Cli::command());
}

#[test]
fn contradictory_arguments_are_refused() {
    for line in [
        "dag create",
        "dag create -f x --validate-only --wait",
        "dag update web",
        "dag update --bandwidth 1Gbps",
        "dag update web -f x --bandwidth 1Gbps",
        "dag update web --bandwidth 1GBps",
        "rule create r --dag web",
        "rule create r --dag web --protocol tpc",
        "bitstream upload b -f x --model m",
        "dag list --timeout soon",
        "dag list -l app=",
        "dag update web --label app=web --no-labels",
        "tenant create acme --label app",
        "fairness get acme --order-by weight",
    ] {
        let words = std::iter::once("snicctl").chain(line.split(' '));
        assert!(Cli::try_parse_from(words).is_err(), "{line}");
    }
}

#[test]
fn documented_commands_are_accepted() {
    for line in [
        "dag create -f - --wait --tenant acme -o json",
        "dag update -f x",
        "dag update web --form sequential --etag x",
        "dag list -A -o yaml --timeout 5s",
        "dag list -l app=web,!old --filter state=READY",
        "dag create -f x --label app=web --description text",
        "dag update web --no-labels --description text",
        "rule create r --dag web --protocol tcp --source 10.0.0.0/8",
        "rule update r --priority 3 --protocol tcp --source-port 80 --label a=b",
        "card drain card0 --etag x --wait",
        "bitstream upload b -f x --nts nat,aes --model m --kind user-nt",
        "operation wait x --timeout 1m",
        "context set a --endpoint unix:/run/x --identity operator/a",
        "completions zsh",
    ] {
        let words = std::iter::once("snicctl").chain(line.split(' '));
        Cli::try_parse_from(words).expect(line);
    }
}

/// Fields that many requests or their resources have, each with an option of the same name.
const SHARED: [&str; 6] = ["filter", "order_by", "etag", "allow_missing", "labels", "description"];

/// The command for a request, where a rule of names does not give it.
fn command_of(request: &str) -> String {
    let command = match request {
        "ListFairnessRequest" => "fairness get",
        "ListAuditEntriesRequest" => "audit",
        "ListUsageRequest" => "usage",
        "ListEventsRequest" => "events",
        "BatchCreateDagsRequest" => "dag create",
        "BindVmRequest" => "vm bind",
        "UnbindVmRequest" => "vm unbind",
        "ListBindingsRequest" => "vm list",
        "LoadRoleRequest" => "card load-role",
        "ResetCardRequest" => "card reset",
        "BitstreamHeader" => "bitstream upload",
        "UndrainRegionRequest" => "region undrain",
        _ => "",
    };
    if !command.is_empty() {
        return command.to_owned();
    }
    let name = request.trim_end_matches("Request");
    let verb_end = name[1..].find(char::is_uppercase).map_or(name.len(), |at| at + 1);
    let (verb, noun) = name.split_at(verb_end);
    let noun = noun.trim_end_matches('s').replace("NtType", "Nt");
    format!("{} {}", noun.to_lowercase(), verb.to_lowercase())
}

/// Whoever adds a field of this kind to the API adds it here as well.
#[test]
fn every_field_that_all_requests_share_has_its_option() {
    let pool = DescriptorPool::decode(snic_api::FILE_DESCRIPTOR_SET).expect("descriptors");
    let program = Cli::command();
    let mut checked = 0;
    for message in pool.all_messages().filter(|m| m.package_name() == "snic.control.v1") {
        let name = message.name();
        if !(name.ends_with("Request") || name == "BitstreamHeader") {
            continue;
        }
        // The resource that a request creates or changes is a field of it.
        let changes = ["Create", "Update"].iter().any(|verb| name.starts_with(verb));
        let resources = message.fields().filter(|_| changes).filter_map(|field| {
            field.kind().as_message().filter(|m| m.package_name() == "snic.control.v1").cloned()
        });
        let mut fields: Vec<String> = message.fields().map(|f| f.name().to_owned()).collect();
        // An etag of what does not exist yet guards nothing.
        fields.extend(resources.flat_map(|resource| {
            let fields: Vec<String> = resource.fields().map(|f| f.name().to_owned()).collect();
            fields.into_iter().filter(|field| !name.starts_with("Create") || field != "etag")
        }));
        for option in SHARED.iter().filter(|shared| fields.iter().any(|f| f == *shared)) {
            let words = command_of(name);
            let command = words.split(' ').fold(&program, |command, word| {
                command.find_subcommand(word).unwrap_or_else(|| panic!("{name}: {words}"))
            });
            let has = command.get_arguments().any(|argument| argument.get_id() == *option);
            assert!(has, "snicctl {words} lacks {option}, which {name} has");
            checked += 1;
        }
    }
    assert!(checked > 50, "{checked} options");
}
