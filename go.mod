module github.com/muster-gpu/muster

go 1.26

require (
	github.com/klauspost/compress v1.20.3 // indirect
	gopkg.in/yaml.v3 v3.0.1 // indirect
	pgregory.net/rapid v1.3.0 // indirect
)
