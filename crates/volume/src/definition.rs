//! A definition as the options of a start.

use crate::core::CoreSpec;
use crate::options::{BlockOptions, CacheOptions, MirrorOptions, RbdOptions, ServeOptions, check};
use crate::profile;
use anyhow::{Result, anyhow, bail, ensure};
use loligo_block::keyed;
use loligo_ceph::attach::Destage;
use loligo_client::api::definition::{Leave, TlsConfig, VolumeConfig};
use loligo_engine::params::Params;
use loligo_export::blockdev::Owner;
use loligo_export::{Credentials, ExportSpec, ListenAddr};
use loligo_format::mode::Mode;
use std::path::PathBuf;
use std::time::Duration;

impl ServeOptions {
    /// Those of the volume `name` that `volume` defines.
    ///
    /// # Errors
    /// An error says what is wrong with it.
    pub fn of(volume: &VolumeConfig, name: &str, leave: Leave) -> Result<ServeOptions> {
        let core: CoreSpec = volume.core.parse().map_err(|e| anyhow!("core = \"{}\": {e}", volume.core))?;
        let profile = volume.profile.as_deref().map(profile::find).transpose()?;
        ensure!(
            profile.is_none() || volume.cache.is_some(),
            "a profile is for a cache: give cache, or leave profile out"
        );
        let mode =
            volume.mode.as_deref().map(|m| m.parse::<Mode>().map_err(|e| anyhow!("mode = \"{m}\": {e}")));
        let cache = match (&volume.cache, mode.transpose()?.or(profile.map(|p| p.mode))) {
            (None, None) if volume.journal_mirror.is_some() => {
                bail!("journal-mirror is given and cache is not: a bare core has no journal")
            }
            (None, None) => None,
            (None, Some(_)) => bail!("mode is given and cache is not: give both, or neither for a bare core"),
            (Some(_), None) => bail!("mode is missing: give wt, wb, wa, wi, wo or pt"),
            (Some(path), Some(mode)) => Some(CacheOptions {
                path: path.clone(),
                size: volume.cache_size.map(|b| b.0),
                sparse: volume.sparse,
                mode,
                line_size: volume.line_size.map(|b| u32::try_from(b.0).unwrap_or(u32::MAX)),
                shards: volume.shards,
                core_reserve: volume.core_reserve,
                mirror: mirror(volume, leave)?,
                create: leave.create,
                force: leave.force,
                replace: None,
                expected: None,
                disputed: None,
            }),
        };
        let params: Vec<_> = volume.params.iter().map(|(k, v)| (k.clone(), v.0.clone())).collect();
        let listen = volume.listen.iter().map(|l| export_spec(l));
        let seconds = Duration::from_secs;
        let options = ServeOptions {
            name: name.to_owned(),
            core,
            rbd: RbdOptions {
                steal: leave.steal,
                without_cache: leave.without_cache,
                destage: volume.rbd.destage.parse::<Destage>().map_err(|e| anyhow!("rbd: {e}"))?,
                lease: seconds(volume.rbd.lease),
                snapshot_deadline: seconds(volume.rbd.snapshot_deadline),
            },
            cache,
            reservation: volume
                .reservation
                .as_deref()
                .map(str::parse)
                .transpose()
                .map_err(|e: String| anyhow!(e))?,
            identity: None,
            force: leave.force,
            listen: listen.collect::<Result<_>>()?,
            block: BlockOptions {
                rotational: volume.rotational.parse().map_err(|e| anyhow!("rotational: {e}"))?,
                dev_names: volume.dev_names.clone(),
                owner: owner(volume)?,
            },
            tls: volume.tls.as_ref().map(credentials).transpose()?,
            metrics: None,
            stats_json: None,
            flush_on_stop: volume.flush_on_stop,
            params: match profile {
                Some(profile) => profile.with(&params),
                None => params,
            },
            data_offset: volume.data_offset.map(|b| b.0),
        };
        check(&options).map_err(|why| anyhow!(keyed!("{why:#}").for_file()))?;
        let mut params = Params::default();
        for (key, value) in &options.params {
            params.set(key, value).map_err(|e| anyhow!("params: {e}"))?;
        }
        Ok(options)
    }
}

/// A way to a volume, as it is written. Beside the file, where the paths of cores and caches begin, is no place for sockets and mounts.
pub fn export_spec(text: &str) -> Result<ExportSpec> {
    let spec = text.parse::<ExportSpec>().map_err(|e| anyhow!("listen: {e}"))?;
    let (kind, path) = match &spec {
        ExportSpec::Socket(socket) => match &socket.addr {
            ListenAddr::Unix(path) => ("unix", path),
            ListenAddr::Tcp(_) => return Ok(spec),
        },
        ExportSpec::Fuse(path) => ("fuse", path),
        ExportSpec::Block(_) | ExportSpec::Ublk(_) | ExportSpec::Loop(_) => return Ok(spec),
    };
    ensure!(
        path.is_absolute(),
        "listen = \"{text}\": the path is not whole, and would begin in whatever folder the daemon was started in: give it whole, \
         as {kind}:/run/{}",
        path.file_name().unwrap_or_default().display()
    );
    Ok(spec)
}

/// The mode that `volume` starts in, which may be its profile's; nothing: it is served bare.
pub fn mode_at_start(volume: &VolumeConfig) -> Option<String> {
    volume.cache.as_ref()?;
    let own = volume.mode.clone();
    own.or_else(|| Some(profile::find(volume.profile.as_deref()?).ok()?.mode.name().to_owned()))
}

fn mirror(volume: &VolumeConfig, leave: Leave) -> Result<Option<MirrorOptions>> {
    let required = match volume.mirror.as_deref() {
        None | Some("preferred") => false,
        Some("required") => true,
        Some(other) => bail!("mirror = \"{other}\": preferred or required"),
    };
    let options = |path: &PathBuf| MirrorOptions { path: path.clone(), required, alone: leave.mirror_alone };
    ensure!(
        volume.journal_mirror.is_some() || volume.mirror.is_none(),
        "mirror says what becomes of a journal-mirror: give that, too"
    );
    Ok(volume.journal_mirror.as_ref().map(options))
}

fn owner(volume: &VolumeConfig) -> Result<Option<Owner>> {
    let owner = volume.dev_owner.as_deref().map(|o| o.parse().map_err(|e| anyhow!("dev-owner: {e}")));
    owner.transpose()
}

fn credentials(tls: &TlsConfig) -> Result<Credentials> {
    match (&tls.cert, &tls.key, &tls.psk) {
        (Some(cert), Some(key), None) => {
            ensure!(
                !tls.anonymous || tls.ca.is_none(),
                "tls: ca says that clients must show a certificate, and anonymous that they need not: give one"
            );
            Ok(Credentials::X509 {
                cert: cert.clone(),
                key: key.clone(),
                client_ca: tls.ca.clone(),
                anonymous: tls.anonymous,
            })
        }
        (None, None, Some(file)) if tls.ca.is_none() && !tls.anonymous => {
            Ok(Credentials::Psk { file: file.clone() })
        }
        _ => bail!(
            "tls: give cert, key and ca (or anonymous = true, if clients need no certificate), or psk alone"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_definition_is_refused_by_the_keys_of_its_file() {
        let refused = |more: &str| {
            let text = format!("core = \"/c\"\ncache = \"/d\"\nmode = \"wb\"\n{more}");
            let config: VolumeConfig = toml::from_str(&text).unwrap();
            ServeOptions::of(&config, "v", Leave::default()).unwrap_err().to_string()
        };
        let why = refused("listen = [\"unix:/x\"]\nshards = 99");
        assert!(why.starts_with("shards = 99: 1 to 64 "), "{why}");
        let why = refused("listen = [\"unix:/x\", \"unix:/x\"]");
        assert!(why.starts_with("listen unix:/x is given twice"), "{why}");
        // The crate of the exports says so.
        let why = refused("listen = [\"tcp:1.2.3.4:5\"]");
        assert!(why.contains("or give tls.cert, tls.key and tls.ca, or tls.psk."), "{why}");
    }
}
