// What reproduces published experiments: the worlds of others' simulators, and the figures that they printed beside
// ours. A module of its own, so that who embeds or packages Muster does not carry it.
module github.com/muster-gpu/muster/experiments

go 1.26.0

require github.com/muster-gpu/muster v0.0.0

require (
	github.com/klauspost/compress v1.20.3 // indirect
	golang.org/x/sys v0.49.0 // indirect
	gopkg.in/yaml.v3 v3.0.1 // indirect
)

replace github.com/muster-gpu/muster => ../
