"""One builder of a Kubernetes object a file: pure functions to plain manifests, each with its golden file."""

from enginewright.core.manifests.activator import activator, activator_name, backend_name
from enginewright.core.manifests.ask_job import ask_job, ask_job_name, ask_key, shared_ask_job_name
from enginewright.core.manifests.batch_job import batch_job, batch_job_name, batch_key
from enginewright.core.manifests.build_job import build_deadline, build_job, build_job_name
from enginewright.core.manifests.build_lease import LEASE_SECONDS, build_lease, holder_identity
from enginewright.core.manifests.claim_template import claim_template, claim_template_name
from enginewright.core.manifests.common import Owner
from enginewright.core.manifests.deployment import deployment, deployment_name, monitored, proven_digest, revision_name
from enginewright.core.manifests.fleet import fleet_service, member, member_key
from enginewright.core.manifests.gc_job import gc_job
from enginewright.core.manifests.jobs import begun_under
from enginewright.core.manifests.pdb import pdb
from enginewright.core.manifests.record import engine_record, read_record, record_mark, record_name
from enginewright.core.manifests.request_configmap import request_configmap
from enginewright.core.manifests.resolve_job import resolve_job, resolve_job_name
from enginewright.core.manifests.revision import read_revision, revision_configmap
from enginewright.core.manifests.routes import grpc_route, http_route, routes
from enginewright.core.manifests.server import caches
from enginewright.core.manifests.service import (
    NO_REVISION,
    activator_service,
    backend_service,
    revision_service,
    revision_service_name,
    service,
)
from enginewright.core.manifests.signing import signing_secret

__all__ = [
    "LEASE_SECONDS", "NO_REVISION", "Owner", "activator", "activator_name",
    "activator_service", "ask_job", "ask_job_name", "ask_key", "backend_name", "backend_service",
    "batch_job", "batch_job_name", "batch_key", "begun_under",
    "build_deadline", "build_job", "build_job_name", "build_lease", "caches",
    "claim_template", "claim_template_name", "deployment", "deployment_name", "engine_record",
    "fleet_service", "gc_job", "grpc_route", "holder_identity", "http_route", "member", "member_key",
    "monitored", "pdb", "proven_digest",
    "read_record", "read_revision", "record_mark", "record_name", "request_configmap", "resolve_job",
    "resolve_job_name", "revision_configmap", "revision_name", "revision_service", "revision_service_name", "routes",
    "service", "shared_ask_job_name", "signing_secret",
]
