# The scheduler of a Kubernetes cluster: one static program, no shell, not root.
#   docker build -t REGISTRY/muster:TAG .
FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 go build -trimpath -ldflags="-s -w" -o /muster-kube ./cmd/muster-kube

FROM gcr.io/distroless/static-debian12:nonroot
COPY --from=build /muster-kube /muster-kube
USER 65532:65532
EXPOSE 9095
ENTRYPOINT ["/muster-kube"]
