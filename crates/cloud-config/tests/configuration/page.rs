//! The user's page is made from the table of keys.

use std::{fs, path::Path};

#[test]
fn the_page_is_as_the_table_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/user/configuration.md");
    let wanted = cloud_config::reference();
    if std::env::var_os("UPDATE").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, &wanted).unwrap();
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == wanted,
        "docs/user/configuration.md is stale; run `UPDATE=1 cargo test -p cloud-config page`"
    );
}
