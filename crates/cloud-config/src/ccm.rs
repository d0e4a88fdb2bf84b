//! The file of the cloud controller manager: from known keys to valid values.

use std::path::Path;

use crate::{
    config::{AddressRules, Config, Labels, Nodes},
    document::{Document, Part},
    keys::{Id, Section},
    problem::{Place, Report},
    values::Values,
    vcenters,
};

/// The configuration, if it is valid; problems go into the report.
pub(crate) fn build(
    document: &Document,
    default_directory: Option<&Path>,
    report: &mut Report,
) -> Option<Config> {
    let empty = Part::new(Section::Global, None, Place::Whole);
    let vcenters = vcenters::build(document, default_directory, report);
    let mut labels = Values { part: document.section(Section::Labels).unwrap_or(&empty), report };
    let labels = Labels {
        zone: labels.text(Id::Zone),
        region: labels.text(Id::Region),
        nearest: labels.flag(Id::NearestTag),
    };
    let nodes = nodes(document.section(Section::Nodes).unwrap_or(&empty), report);
    Some(Config { vcenters: vcenters.into_iter().collect::<Option<_>>()?, labels, nodes })
}

fn nodes(part: &Part, report: &mut Report) -> Nodes {
    let mut values = Values { part, report };
    let mut rules = |network, included, excluded| AddressRules {
        subnets: values.subnets(included),
        network: values.text(network),
        excluded: values.subnets(excluded),
    };
    Nodes {
        internal: rules(Id::InternalNetwork, Id::InternalSubnets, Id::ExcludedInternalSubnets),
        external: rules(Id::ExternalNetwork, Id::ExternalSubnets, Id::ExcludedExternalSubnets),
    }
}
