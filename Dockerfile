# An image in which `make demo` runs, by a user without privileges:
#   docker build -t rankbound .
#   docker run --rm -v "$PWD/demo-output:/rankbound/demo-output" rankbound             # make demo
#   docker run --rm rankbound make test                                                # sets up its environment first
FROM python:3.12-slim
RUN apt-get update \
 && apt-get install --yes --no-install-recommends g++ libgomp1 make \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --create-home rankbound
COPY --chown=rankbound . /rankbound
WORKDIR /rankbound
RUN chown rankbound .
USER rankbound
RUN make setup-demo
CMD ["make", "demo"]
