# A static image of Sluice's three programs. Build: docker build -t sluice .
FROM golang:1.26.0-bookworm AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" -o /out/ ./cmd/ingest ./cmd/export ./cmd/shell \
    && mkdir -p /out/data

FROM gcr.io/distroless/static-debian12:nonroot
COPY --from=build /out/ingest /out/export /out/shell /usr/local/bin/
# A new volume takes over the owner of the directory that it covers.
COPY --from=build --chown=65532:65532 /out/data /data
COPY deploy/sluice.yaml /etc/sluice/sluice.yaml
ENV SLUICE_DATA=/data
USER 65532:65532
VOLUME /data
EXPOSE 8087
ENTRYPOINT ["/usr/local/bin/ingest"]
CMD ["run", "-c", "/etc/sluice/sluice.yaml"]
