//! The commands of `snicd pki`.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Result, ensure};
use clap::Subcommand;
use snic_output::out;

use super::authority::{Authority, CertificateSubject, Pair};

/// Options of `snicd pki`.
#[derive(Debug, clap::Args)]
pub struct PkiOptions {
    /// Folder of the authority
    #[arg(long, global = true, default_value = "/etc/snic/pki")]
    folder: PathBuf,
    #[command(subcommand)]
    command: Command,
}

/// Days, from one to a hundred years.
fn days(text: &str) -> Result<Duration, String> {
    let days: u64 = text.parse().map_err(|_| format!("{text} is not a number of days"))?;
    match days {
        1..=36_500 => Ok(Duration::from_secs(days * 24 * 3_600)),
        _ => Err(format!("{days} days; 1 to 36500 are allowed")),
    }
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make an authority: ca.pem, its key, and an empty list of revoked certificates
    Init {
        /// Trust domain of the identities, as in the daemon's settings
        #[arg(long, default_value = "snic.local")]
        trust_domain: String,
        /// Validity of the authority, in days
        #[arg(long, default_value = "3650", value_parser = days)]
        days: Duration,
    },
    /// Issue a certificate with a new key
    Issue {
        /// server, operator/NAME, tenant/ID, tenant/ID/MEMBER, orchestrator/NAME, host/NAME or replica/NAME
        name: CertificateSubject,
        /// Host name or address that clients use for the server or replica; may be repeated
        /// [default: localhost, 127.0.0.1, ::1]
        #[arg(long)]
        host: Vec<String>,
        /// Validity, in days
        #[arg(long, default_value = "365", value_parser = days)]
        days: Duration,
    },
    /// Issue a certificate again, with a new key; the old one stays valid until it ends
    Renew {
        /// server, operator/NAME, tenant/ID, tenant/ID/MEMBER, orchestrator/NAME, host/NAME or replica/NAME
        name: CertificateSubject,
        /// Validity, in days
        #[arg(long, default_value = "365", value_parser = days)]
        days: Duration,
        /// Revoke the old ones
        #[arg(long)]
        revoke_old: bool,
    },
    /// Revoke all certificates of a name
    Revoke {
        /// server, operator/NAME, tenant/ID, tenant/ID/MEMBER, orchestrator/NAME, host/NAME or replica/NAME
        name: CertificateSubject,
    },
    /// List what was issued
    List,
}

fn day(time: SystemTime) -> String {
    let text = humantime::format_rfc3339_seconds(time).to_string();
    text.split_once('T').map_or(text.clone(), |(day, _)| day.to_owned())
}

/// Carries out a command.
///
/// # Errors
/// There is no authority, or one where a new one is wanted; the name is not valid, or has what is
/// asked for already; a file, or what is printed, cannot be written.
pub fn run(options: &PkiOptions) -> Result<()> {
    let folder = std::path::absolute(&options.folder)?;
    match &options.command {
        Command::Init { trust_domain, days } => init(&folder, trust_domain, *days),
        Command::Issue { name, host, days } => {
            if let CertificateSubject::Client(client) = name {
                ensure!(host.is_empty(), "--host is for servers and replicas, not for {client}");
            }
            let subject = name.clone().at(host.clone());
            let mut authority = Authority::open(&folder)?;
            let old = authority.valid(subject.name(), SystemTime::now());
            if let Some(old) = old {
                let (name, ends) = (subject.name(), day(old.ends()));
                anyhow::bail!(
                    "{name} has a certificate until {ends}; use `snicd pki renew {name}`, or revoke it first"
                );
            }
            let pair = authority.issue(&subject, *days)?;
            print_issued(&authority, &subject, &pair)
        }
        Command::Renew { name, days, revoke_old } => renew(&folder, name, *days, *revoke_old),
        Command::Revoke { name } => {
            let mut authority = Authority::open(&folder)?;
            let count = authority.revoke(name.name(), 0)?;
            ensure!(count > 0, "{} has no valid certificate; see `snicd pki list`", name.name());
            print_revoked(&authority, name.name(), count)
        }
        Command::List => list(&Authority::open(&folder)?),
    }
}

fn init(folder: &Path, trust_domain: &str, valid: Duration) -> Result<()> {
    for name in ["ca.pem", "ca.key"] {
        let path = folder.join(name);
        ensure!(
            !path.exists(),
            "{} exists: certificates of that authority would become invalid; choose another --folder, \
             or remove it first",
            path.display()
        );
    }
    let authority = Authority::create(folder, trust_domain, valid)?;
    out!("authority of spiffe://{trust_domain} until {}", day(authority.ends()))?;
    out!("  certificate  {}", authority.ca().display())?;
    out!("  its key      {}: keep it private", folder.join("ca.key").display())?;
    Ok(out!("next: snicd pki issue server, snicd pki issue operator/admin")?)
}

fn renew(
    folder: &Path,
    name: &CertificateSubject,
    valid: Duration,
    revoke_old: bool,
) -> Result<()> {
    let mut authority = Authority::open(folder)?;
    let last = authority.issued().iter().rev().find(|one| one.name == name.name());
    let Some(last) = last else {
        anyhow::bail!("{0} has no certificate; use `snicd pki issue {0}`", name.name());
    };
    let subject = name.clone().at(last.hosts.clone());
    let pair = authority.issue(&subject, valid)?;
    // All is done before anything is printed: where printing fails, nothing is half done.
    let old = revoke_old.then(|| authority.revoke(name.name(), 1)).transpose()?;
    print_issued(&authority, &subject, &pair)?;
    old.map_or(Ok(()), |count| print_revoked(&authority, name.name(), count))
}

fn print_issued(authority: &Authority, subject: &CertificateSubject, pair: &Pair) -> Result<()> {
    let ends = authority.valid(subject.name(), SystemTime::now()).map(|one| day(one.ends()));
    out!("{} until {}", subject.name(), ends.unwrap_or_default())?;
    out!("  certificate  {}", pair.certificate.display())?;
    out!("  its key      {}", pair.key.display())?;
    let files = || {
        out!("  ca = {:?}", authority.ca())?;
        out!("  certificate = {:?}", pair.certificate)?;
        out!("  key = {:?}", pair.key)
    };
    match subject {
        CertificateSubject::Server(_) => {
            out!("settings of the daemon, in snicd.toml (then `systemctl reload snicd`):")?;
            out!("  [tls]")?;
            files()?;
            out!("  crl = {:?}", authority.crl())?;
        }
        CertificateSubject::Replica(..) => {
            out!("settings of the replica (then start it again):")?;
            out!("  [tls]")?;
            files()?;
            out!("  crl = {:?}", authority.crl())?;
        }
        CertificateSubject::Client(name) if name.starts_with("host/") => {
            out!("settings of the host's daemon, in snicd.toml (then `systemctl restart snicd`):")?;
            out!("  [fleet]")?;
            out!("  endpoints = [\"https://<replica>:<port>\"]")?;
            files()?;
        }
        CertificateSubject::Client(name) => print_context(authority, name, pair)?,
    }
    Ok(())
}

/// Prints the context by which `snicctl` finds a caller's certificate.
fn print_context(authority: &Authority, name: &str, pair: &Pair) -> Result<()> {
    let (kind, id) = name.split_once('/').unwrap_or(("", name));
    let tenant = id.split('/').next().unwrap_or(id);
    let tenant = if kind == "tenant" { format!(" --tenant {tenant}") } else { String::new() };
    let id = id.replace('/', ".");
    out!("a context of snicctl with it:")?;
    out!("  snicctl context set {id} --endpoint https://localhost:7443{tenant} \\")?;
    out!("    --ca {} \\", authority.ca().display())?;
    out!("    --certificate {} \\", pair.certificate.display())?;
    Ok(out!("    --key {}", pair.key.display())?)
}

fn print_revoked(authority: &Authority, name: &str, count: usize) -> Result<()> {
    let noun = if count == 1 { "certificate" } else { "certificates" };
    out!("{count} {noun} of {name} revoked in {}", authority.crl().display())?;
    Ok(out!("the daemon reads the list when it is told to: systemctl reload snicd")?)
}

fn list(authority: &Authority) -> Result<()> {
    let now = SystemTime::now();
    out!("authority of spiffe://{} until {}", authority.trust_domain(), day(authority.ends()))?;
    let width = authority.issued().iter().map(|one| one.name.len()).max().unwrap_or(0).max(4);
    out!("{:width$}  {:10}  {:7}  HOSTS", "NAME", "UNTIL", "STATE")?;
    for one in authority.issued() {
        let state = one.standing(now);
        let hosts = one.hosts.join(" ");
        let line = format!("{:width$}  {:10}  {:7}  {hosts}", one.name, day(one.ends()), state);
        out!("{}", line.trim_end())?;
    }
    Ok(())
}
