module github.com/muster-gpu/muster

go 1.26
