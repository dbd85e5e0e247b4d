# An image in which the two commands of the README run:
#   docker build -t rankbound .
#   docker run --rm -v "$PWD/demo-output:/rankbound/demo-output" rankbound             # make demo
#   docker run --rm rankbound make test
FROM python:3.12-slim
RUN apt-get update \
 && apt-get install --yes --no-install-recommends libgomp1 make \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /rankbound
COPY . .
# the environment of both commands, so that they start at once
RUN make setup
CMD ["make", "demo"]
