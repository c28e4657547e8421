//! Files of earlier versions become those of this one, or stay as they were.

use super::*;

fn write_first_version(folder: &Path, more: &str) {
    let file = Connection::open(folder.join("state.sqlite")).unwrap();
    file.execute_batch(FIRST_VERSION).unwrap();
    file.execute_batch(more).unwrap();
}

#[test]
fn the_first_version_s_file_becomes_this_one_s() {
    let folder = tempfile::tempdir().unwrap();
    write_first_version(folder.path(), "");
    // The second time it is this version's already.
    for _ in 0..2 {
        let mut file = open(folder.path());
        let tenants = file.tenants().unwrap();
        assert_eq!(tenants[0].settings, TenantSettings::default());
        let expected = TenantSettings {
            floor_bytes: Some(1 << 20),
            cap_bytes: Some(2 << 20),
            policy: Some(PolicyChoice::Fixed(Policy::S3Fifo)),
            ..TenantSettings::default()
        };
        let shop = &tenants[1];
        assert_eq!(
            (shop.settings, shop.version, shop.remembered_grant_bytes),
            (expected, 3, None)
        );
        assert_eq!((shop.created_at, shop.secrets.len()), (UnixMs(6), 1));
        assert!(
            shop.secrets[0].name.is_default(),
            "secrets without names are the tenant's own"
        );
        assert_eq!(file.server().unwrap().round_period, Some(Duration::from_millis(250)));
        let version: i64 = file
            .connection
            .pragma_query_value(None, "user_version", |row| row.get(0))
            .unwrap();
        assert_eq!(
            version,
            migrate::SCHEMA_VERSION,
            "a program of the first version refuses it now"
        );
        let added = file
            .add_tenant(&"blog".parse().unwrap(), settings(), secret(1))
            .unwrap();
        assert!(added.id.0 > 7);
        file.remove_tenant(added.id).unwrap();
    }
}

/// The settings' columns in files that there are, by the schema that brought them. A new one comes with a new schema.
const WRITTEN: [(i64, &str); 19] = [
    (1, "cap_bytes INTEGER"),
    (1, "floor_bytes INTEGER"),
    (1, "policy TEXT"),
    (2, "hit_ratio_millionths INTEGER"),
    (3, "bytes_per_second INTEGER"),
    (3, "connections INTEGER"),
    (3, "latency_us INTEGER"),
    (3, "miss_cost_us INTEGER"),
    (3, "ops_per_second INTEGER"),
    (3, "priority INTEGER"),
    (3, "utility TEXT"),
    (3, "weight INTEGER"),
    (5, "at_limit TEXT"),
    (5, "spending TEXT"),
    (7, "flash_cap_bytes INTEGER"),
    (7, "flash_floor_bytes INTEGER"),
    (7, "flash_write_bytes_per_second INTEGER"),
    (7, "staleness TEXT"),
    (8, "minimise TEXT"),
];

#[test]
fn columns_of_files_that_there_are_stay_as_they_are() {
    let column = |setting: &Setting| (setting.column.since, migrate::column(setting));
    let mut columns: Vec<(i64, String)> = SETTINGS.iter().map(column).collect();
    let newest = WRITTEN.map(|(since, _)| since).into_iter().max();
    columns.retain(|(since, _)| Some(*since) <= newest);
    columns.sort_unstable();
    assert_eq!(columns, WRITTEN.map(|(since, column)| (since, column.to_owned())));
}

#[test]
fn a_file_that_can_not_become_this_version_s_stays_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    // The step's second statement finds its column there already.
    write_first_version(
        folder.path(),
        "ALTER TABLE tenants ADD COLUMN remembered_grant_bytes INTEGER",
    );
    for _ in 0..2 {
        let error = StateFile::open(folder.path(), NOW).unwrap_err().to_string();
        assert!(
            error.contains("is damaged") && error.contains("remembered_grant_bytes"),
            "{error}"
        );
        let file = Connection::open(folder.path().join("state.sqlite")).unwrap();
        let version: i64 = file.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
        let has_half = file.prepare("SELECT hit_ratio_millionths FROM tenants").is_ok();
        assert_eq!((version, has_half), (1, false));
    }
}
