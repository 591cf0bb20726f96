{{/* First of all in every template: values that a release from before did not have yet, which `helm upgrade
--reuse-values` leaves away, are the defaults. What is there is taken as it is: files/defaults.yaml names whole maps, as
Helm has taken away what the user set to null in them. */}}
{{- define "enginewright.defaults" -}}
{{- range $path, $default := .Files.Get "files/defaults.yaml" | fromYaml }}
{{- $names := splitList "." $path }}
{{- $at := $.Values }}
{{- range initial $names }}
{{- if kindIs "invalid" (index $at .) }}
{{- $_ := set $at . dict }}
{{- end }}
{{- $at = index $at . }}
{{- end }}
{{- if kindIs "invalid" (index $at (last $names)) }}
{{- $_ := set $at (last $names) $default }}
{{- end }}
{{- end }}
{{- if .Values.env }}
{{- fail "env: is called extraEnv now; move what is there, or with --reuse-values add --set env=null" }}
{{- end }}
{{- end }}

{{- define "enginewright.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "enginewright.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- $name := include "enginewright.name" . }}
{{- if contains $name .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}
{{- end }}

{{- define "enginewright.selectorLabels" -}}
app.kubernetes.io/name: {{ include "enginewright.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end }}

{{/* Of the pod of `helm test`, which no Service and no policy takes for the operator's. */}}
{{- define "enginewright.testLabels" -}}
app.kubernetes.io/name: {{ include "enginewright.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: test
{{- end }}

{{- define "enginewright.ownLabels" -}}
{{ include "enginewright.selectorLabels" . }}
app.kubernetes.io/part-of: enginewright
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | quote }}
{{- end }}

{{/* The user's count, but for those that pods are selected by, and the one that Helm knows its objects by. */}}
{{- define "enginewright.labels" -}}
{{- if .Values.commonLabels }}
{{- $own := include "enginewright.ownLabels" . | fromYaml }}
{{- $fixed := include "enginewright.selectorLabels" . | fromYaml }}
{{- $_ := set $fixed "app.kubernetes.io/managed-by" .Release.Service }}
{{- mergeOverwrite $own .Values.commonLabels $fixed | toYaml }}
{{- else }}
{{- include "enginewright.ownLabels" . }}
{{- end }}
{{- end }}

{{/* With further labels of one object: list of the root context and those. */}}
{{- define "enginewright.labelsAnd" -}}
{{- $labels := include "enginewright.labels" (index . 0) }}
{{- with index . 1 }}
{{- mergeOverwrite (fromYaml $labels) . | toYaml }}
{{- else }}
{{- $labels }}
{{- end }}
{{- end }}

{{/* Each key once: what reads YAML strictly, as Kustomize behind Helm does, refuses one that is there twice. */}}
{{- define "enginewright.podLabels" -}}
{{- $own := include "enginewright.labels" . | fromYaml }}
{{- $selected := include "enginewright.selectorLabels" . | fromYaml }}
{{- mergeOverwrite $own .Values.podLabels $selected | toYaml }}
{{- end }}

{{- define "enginewright.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "enginewright.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- required "serviceAccount.name: name the existing account, or set serviceAccount.create" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{/* Of the whole cluster: two releases of one name may stand in two namespaces. */}}
{{- define "enginewright.admissionPolicyName" -}}
{{- printf "%s-%s" .Release.Namespace (include "enginewright.fullname" .) | trunc 253 | trimSuffix "-" }}
{{- end }}

{{/* With auto not in a release that has nothing else of the whole cluster: who installs that may have rights in namespaces
only. */}}
{{- define "enginewright.hasAdmissionPolicy" -}}
{{- $enabled := toString .Values.admissionPolicy.enabled }}
{{- if ne $enabled "auto" }}
{{- $enabled }}
{{- else if and .Values.watchNamespaces (not .Values.crds.install) }}
{{- "false" }}
{{- else }}
{{- "true" }}
{{- end }}
{{- end }}

{{/* One image reference: list of the root context and the image's values. A first part with a dot or a port is a registry,
as for what pulls it. */}}
{{- define "enginewright.image" -}}
{{- $root := index . 0 }}
{{- $image := index . 1 }}
{{- $repository := $image.repository }}
{{- with $root.Values.global.imageRegistry }}
{{- $repository = printf "%s/%s" . (regexReplaceAll "^(localhost|[^/]*[.:][^/]*)/" $repository "") }}
{{- end }}
{{- if $image.reference }}
{{- $image.reference }}
{{- else if $image.digest }}
{{- printf "%s@%s" $repository $image.digest }}
{{- else }}
{{- printf "%s:%s" $repository (default $root.Chart.AppVersion $image.tag) }}
{{- end }}
{{- end }}

{{/* As enginewright.image, of the image of that name; empty where the platform names none. */}}
{{- define "enginewright.imageIfAny" -}}
{{- $root := index . 0 }}
{{- $image := get $root.Values.images (index . 1) }}
{{- if or $image.repository $image.reference }}
{{- include "enginewright.image" (list $root $image) }}
{{- else if or $image.tag $image.digest }}
{{- fail (printf "images.%s has a tag or digest, and no repository; write repository, or remove them" (index . 1)) }}
{{- end }}
{{- end }}

{{/* Names of Secrets, each once, as JSON; given as names or as a pod has them. */}}
{{- define "enginewright.pullSecrets" -}}
{{- $names := list }}
{{- range .Values.imagePullSecrets }}
{{- if kindIs "map" . }}
{{- $names = append $names .name }}
{{- else }}
{{- $names = append $names . }}
{{- end }}
{{- end }}
{{- $names | uniq | toJson }}
{{- end }}

{{/* The operator's settings: field names of OperatorConfig. Numbers of a values file are floats, which are written with an
exponent from a million on; the operator takes integers alone. */}}
{{- define "enginewright.config" -}}
images:
  operator: {{ include "enginewright.image" (list . .Values.images.operator) | quote }}
  builder: {{ include "enginewright.image" (list . .Values.images.builder) | quote }}
  server: {{ include "enginewright.image" (list . .Values.images.server) | quote }}
  server_vllm: {{ include "enginewright.imageIfAny" (list . "serverVllm") | quote }}
pull_policy: {{ .Values.imagePullPolicy }}
image_pull_secrets: {{ include "enginewright.pullSecrets" . }}
{{- with .Values.config }}
{{- include "enginewright.goneSettings" . }}
{{- include "enginewright.serverArgs" .serverArgs }}
{{- include "enginewright.qualityMemory" .qualityResources }}
server_args: {{ .serverArgs | toJson }}
runtime_class_name: {{ .runtimeClassName | quote }}
require_mig_config_state: {{ .requireMigConfigState }}
observe_nodes: {{ and $.Values.rbac.nodes (not $.Values.watchNamespaces) }}
resolve_resources: {{ .resolveResources | toJson }}
build_resources: {{ .buildResources | toJson }}
server_resources: {{ .serverResources | toJson }}
prove_resources: {{ .proveResources | toJson }}
verify_resources: {{ .verifyResources | toJson }}
quality_resources: {{ .qualityResources | toJson }}
activator_resources: {{ .activatorResources | toJson }}
activator_replicas: {{ .activatorReplicas | int64 }}
{{- with .defaultStore }}
default_store: {{ dict "uri" .uri "secret" .secretRef.name "service_account_name" .serviceAccountName | toJson }}
{{- end }}
collect_engines: {{ .collectEngines }}
engine_grace: {{ .engineGraceSeconds | int64 }}
job_labels: {{ .jobLabels | toJson }}
job_annotations: {{ .jobAnnotations | toJson }}
job_env: {{ .jobEnv | toJson }}
job_priority_class_name: {{ .jobPriorityClassName | quote }}
job_ttl: {{ .jobTtlSeconds | int64 }}
job_backoff_limit: {{ .jobBackoffLimit | int64 }}
job_pending_limit: {{ .jobPendingLimitSeconds | int64 }}
resolve_deadline: {{ .resolveDeadlineSeconds | int64 }}
build_deadline_margin: {{ .buildDeadlineMarginSeconds | int64 }}
drain_seconds: {{ .drainSeconds | int64 }}
exit_timeout: {{ .exitTimeoutSeconds | int64 }}
spot_labels: {{ .spotLabels | toJson }}
{{- $perHour := dict }}
{{- range $class, $price := .prices.perHour }}
{{- $_ := set $perHour $class ($price | float64) }}
{{- end }}
prices: {{ dict "currency" .prices.currency "per_hour" $perHour | toJson }}
{{- end }}
{{- if .Values.trustedCA.configMap }}
trusted_ca: {config_map: {{ .Values.trustedCA.configMap | quote }}, key: {{ .Values.trustedCA.key | quote }}}
{{- end }}
{{- if .Values.openshift.enabled }}
openshift: true
{{- end }}
{{- end }}

{{/* Ports of replicas that clients ask; the operator looks again, at other forms and at its other ports, too. */}}
{{- define "enginewright.serverArgs" -}}
{{- range $index, $argument := . }}
{{- range $name, $port := dict "http" "8000" "grpc" "8001" "metrics" "8002" }}
{{- $own := printf "--%s-port" $name }}
{{- if and (hasPrefix $own $argument) (ne $argument (printf "%s=%s" $own $port)) }}
{{- fail (printf "config.serverArgs[%d]: got %q, is %s on each replica, for the operator, the Service and probes; remove it; a Service of your own may have another" $index $argument $port) }}
{{- end }}
{{- if regexMatch (printf "^--allow-%s=(?i:false|off|0)$" $name) $argument }}
{{- fail (printf "config.serverArgs[%d]: got %q, is used by the operator, the Service or probes; remove it" $index $argument) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* The least that a quality monitor starts with (LEAST_MEMORY of the operator), where an object has no limit of its own.
The schema has seen to the form of the quantity. */}}
{{- define "enginewright.qualityMemory" -}}
{{- $memory := dig "limits" "memory" "" . }}
{{- if $memory }}
{{- $factors := dict "" 1.0 "m" 0.001 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "Ki" 1024.0 "Mi" 1048576.0 "Gi" 1073741824.0 "Ti" 1099511627776.0 }}
{{- $number := regexFind "^[0-9.]+" $memory }}
{{- if lt (mulf (float64 $number) (get $factors (trimPrefix $number $memory))) 268435456.0 }}
{{- fail (printf "config.qualityResources.limits.memory: got %q, is less than the monitor needs for any model; write at least 256Mi, and more for a large source model" $memory) }}
{{- end }}
{{- end }}
{{- end }}

{{/* Settings that are gone. The defaults that they had come with `helm upgrade --reuse-values`, and say nothing. */}}
{{- define "enginewright.goneSettings" -}}
{{- $config := . }}
{{- $asked := "the operator asks the server image which backends and libraries it has, and status.server of each object shows them" }}
{{- range $gone := list
  (list "serverBackends" (list "python") $asked)
  (list "serverPythonRuntimes" (list "onnxruntime") $asked)
  (list "proveInServerImage" true "the server image proves every engine")
  (list "batcherResources" (dict "requests" (dict "cpu" "20m" "memory" "96Mi") "limits" (dict "memory" "256Mi"))
    "no container changes the batching of a replica") }}
{{- $name := index $gone 0 }}
{{- $value := get $config $name }}
{{- if and $value (ne (toJson $value) (toJson (index $gone 1))) }}
{{- fail (printf "config.%s: is %s, and there is no such setting any more: %s. Remove it from your values, or with --reuse-values add --set config.%s=null" $name (toJson $value) (index $gone 2) $name) }}
{{- end }}
{{- end }}
{{- end }}

{{/* Of the pods of models in one namespace: list of the root context and the namespace. */}}
{{- define "enginewright.modelPolicies" -}}
{{- $root := index . 0 }}
{{- with $root.Values.networkPolicy }}
{{- $clients := .models.clientsFrom }}
{{- $scrapers := .metricsFrom }}
{{- $operator := dict
  "namespaceSelector" (dict "matchLabels" (dict "kubernetes.io/metadata.name" $root.Release.Namespace))
  "podSelector" (dict "matchLabels" (include "enginewright.selectorLabels" $root | fromYaml)) }}
{{- $dns := list (dict "port" 53 "protocol" "UDP") (dict "port" 53 "protocol" "TCP") }}
{{- $tracing := include "enginewright.tracingPort" $root }}
---
{{ include "enginewright.modelPolicyHead" (list $root (index $ 1) "replicas") }}
spec:
  podSelector:
    matchLabels: {app.kubernetes.io/managed-by: enginewright, app.kubernetes.io/component: server}
  policyTypes: [Ingress, Egress]
  ingress:
    # Clients, by HTTP and gRPC.
    - ports: [{port: 8000, protocol: TCP}, {port: 8001, protocol: TCP}]
      {{- with $clients }}
      from: {{ toJson . }}
      {{- end }}
    # What holds requests, and monitors that let another revision answer them, too.
    - ports: [{port: 8000, protocol: TCP}, {port: 8001, protocol: TCP}]
      from:
        - podSelector:
            matchLabels: {app.kubernetes.io/managed-by: enginewright}
            matchExpressions:
              - {key: app.kubernetes.io/component, operator: In, values: [server, activator]}
    - ports: [{port: 8000, protocol: TCP}, {port: 8002, protocol: TCP}, {port: 8003, protocol: TCP}]
      from: [{{ toJson $operator }}]
    # Metrics of the server and the quality monitor.
    - ports: [{port: 8002, protocol: TCP}, {port: 8003, protocol: TCP}]
      {{- with $scrapers }}
      from: {{ toJson . }}
      {{- end }}
  egress:
    - ports: {{ toJson $dns }}
    - ports: [{port: 8000, protocol: TCP}]
      to:
        - podSelector:
            matchLabels: {app.kubernetes.io/managed-by: enginewright, app.kubernetes.io/component: server}
    {{- with .models.replicaEgress }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
---
{{ include "enginewright.modelPolicyHead" (list $root (index $ 1) "language-models") }}
spec:
  podSelector:
    matchLabels: {app.kubernetes.io/managed-by: enginewright, app.kubernetes.io/component: server, enginewright.io/server: vllm}
  policyTypes: [Ingress]
  ingress:
    # Metrics of vLLM, which are a page of the port that clients ask.
    - ports: [{port: 8000, protocol: TCP}]
      {{- with $scrapers }}
      from: {{ toJson . }}
      {{- end }}
---
{{ include "enginewright.modelPolicyHead" (list $root (index $ 1) "activators") }}
spec:
  podSelector:
    matchLabels: {app.kubernetes.io/managed-by: enginewright, app.kubernetes.io/component: activator}
  policyTypes: [Ingress, Egress]
  ingress:
    - ports: [{port: 8000, protocol: TCP}, {port: 8001, protocol: TCP}]
      {{- with $clients }}
      from: {{ toJson . }}
      {{- end }}
    - ports: [{port: 8002, protocol: TCP}]
      from: [{{ toJson $operator }}]
    - ports: [{port: 8002, protocol: TCP}]
      {{- with $scrapers }}
      from: {{ toJson . }}
      {{- end }}
  egress:
    - ports: {{ toJson $dns }}
    - ports: [{port: 8000, protocol: TCP}, {port: 8001, protocol: TCP}]
      to:
        - podSelector:
            matchLabels: {app.kubernetes.io/managed-by: enginewright, app.kubernetes.io/component: server}
---
{{ include "enginewright.modelPolicyHead" (list $root (index $ 1) "server-images") }}
spec:
  # An image that an object names is asked what it has: without any connection.
  podSelector:
    matchLabels: {app.kubernetes.io/managed-by: enginewright, app.kubernetes.io/component: ask}
  policyTypes: [Ingress, Egress]
---
{{ include "enginewright.modelPolicyHead" (list $root (index $ 1) "jobs") }}
spec:
  podSelector:
    matchLabels: {app.kubernetes.io/managed-by: enginewright}
    matchExpressions:
      - {key: app.kubernetes.io/component, operator: In, values: [resolve, build, batch, gc, captures]}
  # No client connects to a Job: Ingress without rules refuses all. An empty list says the same, but some engines of network
  # policies allow all then.
  policyTypes: [Ingress, Egress]
  egress:
    - ports: {{ toJson $dns }}
    {{- with $tracing }}
    - ports: [{port: {{ . }}, protocol: TCP}]
    {{- end }}
    {{- with .models.jobEgress }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{ end }}
{{- end }}

{{/* List of the root context, the namespace, and whose pods it is about. */}}
{{- define "enginewright.modelPolicyHead" -}}
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: {{ include "enginewright.fullname" (index . 0) }}-{{ index . 2 }}
  namespace: {{ index . 1 }}
  labels:
    {{- include "enginewright.labels" (index . 0) | nindent 4 }}
{{- end }}

{{/* Where traces go; empty where none are made. */}}
{{- define "enginewright.tracingPort" -}}
{{- with .Values.tracing.endpoint }}
{{- $url := urlParse . }}
{{- regexFind "[0-9]+$" (regexFind ":[0-9]+$" $url.host) | default (ternary "443" "80" (eq $url.scheme "https")) }}
{{- end }}
{{- end }}

{{/* What the operator may do: the table in operator/enginewright/clients/kube.py, and no more. */}}
{{- define "enginewright.rules" -}}
- apiGroups: [enginewright.io]
  resources: [optimisedmodels]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [enginewright.io]
  resources: [optimisedmodels/status]
  verbs: [patch]
- apiGroups: [enginewright.io]
  resources: [optimisedmodels/finalizers]
  verbs: [update]
- apiGroups: [batch]
  resources: [jobs]
  verbs: [get, list, watch, create, delete]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, delete]
- apiGroups: [""]
  resources: [pods/log]
  verbs: [get]
- apiGroups: [apps]
  resources: [deployments]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [apps]
  resources: [deployments/scale]
  verbs: [patch]
- apiGroups: [""]
  resources: [services, configmaps]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [secrets]
  verbs: [create]
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [get, list, watch]
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [get, list, watch]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create, patch]
- apiGroups: [resource.k8s.io]
  resources: [resourceclaimtemplates]
  verbs: [list, create, patch]
- apiGroups: [gateway.networking.k8s.io]
  resources: [httproutes, grpcroutes]
  verbs: [list, create, patch, delete]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [events]
  verbs: [create, get, patch]
{{- end }}

{{/* Nodes belong to no namespace, so that no Role can grant this: only where the operator has all namespaces. */}}
{{- define "enginewright.nodeRules" -}}
- apiGroups: [""]
  resources: [nodes]
  verbs: [list]
{{- end }}

{{/* Of the Lease that the working operator holds, in the operator's own namespace. */}}
{{- define "enginewright.leaderRules" -}}
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [get, create, patch]
{{- end }}

{{/* What users may do, who have the cluster's own roles in a namespace; only the operator writes status. */}}
{{- define "enginewright.viewRules" -}}
- apiGroups: [enginewright.io]
  resources: [optimisedmodels]
  verbs: [get, list, watch]
- apiGroups: [enginewright.io]
  resources: [optimisedmodels/status, optimisedmodels/scale]
  verbs: [get]
{{- end }}

{{- define "enginewright.editRules" -}}
- apiGroups: [enginewright.io]
  resources: [optimisedmodels]
  verbs: [create, update, patch, delete]
- apiGroups: [enginewright.io]
  resources: [optimisedmodels/scale]
  verbs: [update, patch]
{{- end }}
