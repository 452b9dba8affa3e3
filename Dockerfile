# The test suite in a container: docker build -t reactor . && docker run --rm --ulimit nofile=20000 reactor
ARG RUBY=3.4
FROM ruby:${RUBY}
RUN apt-get update \
 && apt-get install --yes --no-install-recommends rustup libclang-dev strace \
 && rm -rf /var/lib/apt/lists/* \
 && rustup default stable \
 && rustup component add rustfmt clippy
WORKDIR /reactor
COPY . .
RUN bin/setup
CMD ["bin/test", "--all"]
