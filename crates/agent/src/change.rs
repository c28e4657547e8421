//! How the record of an application is changed: read, changed, and written if nobody else has written it meanwhile.

use crate::error::AgentError;
use crate::etcd::{Etcd, EtcdError, Write};
use crate::layout::{AppRecord, app_key};

/// Changes what is wanted of an application.
pub(crate) async fn change_app(
    etcd: &Etcd,
    app: &str,
    change: impl Fn(&mut AppRecord) -> Result<(), AgentError>,
) -> Result<AppRecord, AgentError> {
    let key = app_key(app);
    loop {
        let (_, pairs) = etcd.range(&key).await?;
        let pair = pairs.into_iter().find(|pair| pair.key == key);
        let pair = pair.ok_or_else(|| AgentError::NoApp(app.to_owned()))?;
        let mut record: AppRecord = serde_json::from_str(&pair.value).map_err(|_| EtcdError::Unreadable)?;
        change(&mut record)?;
        let value = serde_json::to_string(&record).map_err(|_| EtcdError::Unreadable)?;
        let put = Write::Put {
            key: key.clone(),
            value,
            lease: 0,
        };
        if etcd.write_if(&key, pair.revision, &[put]).await?.0 {
            return Ok(record);
        }
    }
}
