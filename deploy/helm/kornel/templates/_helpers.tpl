{{- define "kornel.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "kornel.selector" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "kornel.labels" -}}
{{ include "kornel.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | quote }}
{{- end -}}

{{- define "kornel.image" -}}
{{- $repository := required "image.repository: where you have pushed the image; none is published, so build it from the Dockerfile" .Values.image.repository -}}
{{- if .Values.image.digest -}}
{{ $repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ $repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end -}}
{{- end -}}

{{- define "kornel.shimSelector" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride | trunc 58 | trimSuffix "-" }}-shim
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "kornel.shimLabels" -}}
{{ include "kornel.shimSelector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | quote }}
{{- end -}}

{{- define "kornel.shimImage" -}}
{{- $repository := required "shim.image.repository: where you have pushed the image; none is published, so build it from shim_k8s/Dockerfile" .Values.shim.image.repository -}}
{{- if .Values.shim.image.digest -}}
{{ $repository }}@{{ .Values.shim.image.digest }}
{{- else -}}
{{ $repository }}:{{ default .Chart.AppVersion .Values.shim.image.tag }}
{{- end -}}
{{- end -}}

{{- define "kornel.probe" -}}
exec:
  command:
    - kornel
    - --ca=/etc/kornel/tls/ca.crt
    - --cert=/etc/kornel/probe/tls.crt
    - --key=/etc/kornel/probe/tls.key
    - --server-name={{ include "kornel.fullname" . }}.{{ .Release.Namespace }}.svc
    - health
{{- end -}}

{{- define "kornel.namesTokens" -}}
{{- range .Values.security.rules -}}
{{- range .who -}}
{{- if hasPrefix "token:" . -}}
{{ . }}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
