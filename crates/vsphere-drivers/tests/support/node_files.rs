//! Files of a lab's node, seen from the machine.

use std::path::PathBuf;

use lab::Node;

/// A path of the node as the machine sees it.
pub(crate) fn outside(node: &Node, path: &str) -> PathBuf {
    node.disks().parent().unwrap().join("root").join(path.trim_start_matches('/'))
}
