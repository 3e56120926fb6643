//! `kafka-backup-bench CONFIG`: back up or restore, as the file says. What OSO's own command does of it.

use kafka_backup_core::config::Mode;
use kafka_backup_core::{backup::BackupEngine, Config, RestoreEngine};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("give the path of a config")?;
    let (config, ignored) = Config::from_yaml_with_warnings(&std::fs::read_to_string(path)?)?;
    if !ignored.is_empty() {
        return Err(format!("unknown keys: {ignored:?}").into());
    }
    match config.mode {
        Mode::Backup => BackupEngine::new(config).await?.run().await?,
        Mode::Restore => println!("{} records", RestoreEngine::new(config)?.run().await?.records_restored),
    }
    Ok(())
}
