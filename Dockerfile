# The service on ONNX Runtime, without PyTorch: docs/guides/deploy.md says how to run it.
FROM python:3.12-slim
WORKDIR /app
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src src
RUN pip install --no-cache-dir -c constraints.txt '.[onnx]' && rm -rf /app/src \
 && useradd --system --create-home uatlite
USER uatlite
EXPOSE 8000
HEALTHCHECK --start-period=20s CMD \
  ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8000/health', timeout=3)"]
ENTRYPOINT ["uatlite", "serve", "/model", "--host", "0.0.0.0"]
