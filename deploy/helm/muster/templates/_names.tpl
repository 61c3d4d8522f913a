{{- define "muster.selector" -}}
app.kubernetes.io/name: muster
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
{{- define "muster.agent" -}}
app.kubernetes.io/name: muster-agent
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
{{- define "muster.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}
