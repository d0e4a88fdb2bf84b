//! What happens to disks and their machines without any call of a client.

use anyhow::Result;
use serde_json::{Value, json};

use super::Control;

impl Control {
    /// Drops CNS's record of a volume; its disk stays, also on a machine.
    ///
    /// # Errors
    /// As [`Control::state`].
    pub async fn forget_record(&self, volume: &str) -> Result<()> {
        self.change_volume(volume, json!({"record": false})).await
    }

    /// Loses the disk of a volume and leaves CNS's record of it, or brings the disk back.
    ///
    /// # Errors
    /// As [`Control::state`].
    pub async fn lose_disk(&self, volume: &str, lost: bool) -> Result<()> {
        self.change_volume(volume, json!({"disk": !lost})).await
    }

    /// Switches changed block tracking of a disk.
    ///
    /// # Errors
    /// As [`Control::state`].
    pub async fn track_disk(&self, volume: &str, on: bool) -> Result<()> {
        self.change_volume(volume, json!({"tracking": on})).await
    }

    /// Ends the hold that machines which are gone have on a disk.
    ///
    /// # Errors
    /// As [`Control::state`].
    pub async fn free_stale(&self, volume: &str) -> Result<()> {
        self.change_volume(volume, json!({"held": false})).await
    }

    /// Switches changed block tracking of a machine.
    ///
    /// # Errors
    /// As [`Control::state`].
    pub async fn track_vm(&self, vm: &str, on: bool) -> Result<()> {
        self.post("/vm/tracking", json!({"vm": vm, "tracking": on})).await.map(drop)
    }

    /// Makes a machine busy with something else, such as a backup, or ends that.
    ///
    /// # Errors
    /// As [`Control::state`].
    pub async fn busy(&self, vm: &str, busy: bool) -> Result<()> {
        self.post("/vm/busy", json!({"vm": vm, "busy": busy})).await.map(drop)
    }

    /// Takes a snapshot of a machine, which locks the disks that it has.
    ///
    /// # Errors
    /// As [`Control::state`].
    pub async fn snapshot_vm(&self, vm: &str, name: &str) -> Result<()> {
        self.post("/vm/snapshot", json!({"vm": vm, "name": name})).await.map(drop)
    }

    /// Deletes all snapshots of a machine.
    ///
    /// # Errors
    /// As [`Control::state`].
    pub async fn remove_vm_snapshots(&self, vm: &str) -> Result<()> {
        self.post("/vm/snapshot", json!({"vm": vm, "remove_all": true})).await.map(drop)
    }

    /// Starts a machine anew on another host, as high availability does when its host is lost.
    ///
    /// # Errors
    /// As [`Control::state`].
    pub async fn restart_vm(&self, vm: &str, host: &str) -> Result<()> {
        self.post("/vm/restart", json!({"vm": vm, "host": host})).await.map(drop)
    }

    async fn change_volume(&self, volume: &str, mut change: Value) -> Result<()> {
        change["volume"] = json!(volume);
        self.post("/volume", change).await.map(drop)
    }
}
